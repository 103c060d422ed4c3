"""Where the states of applications are: on this machine, or in an object store.

Problem: `state.dir` may be a place in an object store or in HDFS. Spark, channels and sinks work on files of
this machine, and a store has neither locks nor renames.

Design: the store has the truth, in the series of numbered checkpoints of `checkpoints.copied_checkpoints`: a
checkpoint is there before its results are shown. A run works in a directory of its machine, from which a
killed process continues as always; whoever finds nothing there, or something older than the store's newest
checkpoint, begins with that (docs/decisions/0156-a-state-in-an-object-store-is-its-numbered-checkpoints.md).
What is copied without being the state, by `checkpoint.copy-to`, is the same series of objects.

Called by everything that opens a state directory. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import hashlib
from typing import Final
from urllib.parse import urlsplit

from drivetrain.config import Config
from drivetrain.config.catalog import abfs, checkpoint, gs, run, s3
from drivetrain.config.key import Key
from drivetrain.errors import ConfigError
from drivetrain.runtime.objects.locations import is_in_object_store
from drivetrain.runtime.user_cache import cache_directory

_DIGITS: Final = 8


def is_remote(config: Config) -> bool:
    """Whether states are in an object store or in HDFS."""
    return is_in_object_store(config[run.STATE_DIR])


def state_home(config: Config) -> str:
    """The directory of this machine that has the folders of applications: `state.dir`, or in its place the
    working directory of a remote one."""
    place = config[run.STATE_DIR]
    if not is_in_object_store(place):
        return place
    work, is_default = config[run.WORK_DIR], config[run.WORK_DIR] == run.WORK_DIR.default
    parent = str(cache_directory() / "states") if is_default else work
    # Two stores may have buckets of one name.
    identity = f"{place.rstrip('/')} {_store(place, config)}"
    digits = hashlib.sha256(identity.encode()).hexdigest()[:_DIGITS]
    name = urlsplit(place).netloc.replace(":", "-").replace("@", "-")
    return f"{parent}/{name}-{digits}"


def _store(place: str, config: Config) -> str:
    """Which store a place is in, as far as its URI does not say it."""
    if place.startswith("s3"):
        return config[s3.ENDPOINT]
    if place.startswith("gs"):
        return config[gs.ENDPOINT]
    if place.startswith(("abfs", "az")):
        return f"{config[abfs.ENDPOINT]} {config[abfs.ACCOUNT]}"
    return ""


def shared_state_dir(config: Config) -> str:
    """`state.dir` where it must be a directory; raises ConfigError when it is remote."""
    if is_remote(config):
        raise ConfigError(
            "the state is in an object store, and in no directory that other machines share",
            where=run.STATE_DIR.name,
            got=config[run.STATE_DIR],
            remedy="the machine on which the application runs has what it works with; of a cluster, that is "
            "below the directory of the worker that `drivetrain show` names",
        )
    return config[run.STATE_DIR]


def copies_key(config: Config) -> Key[str]:
    """The key that names the place of an application's copied checkpoints, if one does."""
    return run.STATE_DIR if is_remote(config) else checkpoint.COPY_TO


def copies_place(config: Config) -> str | None:
    """The place to which checkpoints are copied before their results are shown; None: they are not.

    Raises ConfigError when two places are named.
    """
    is_named = config[checkpoint.COPY_TO] != checkpoint.COPY_TO.default
    if is_remote(config):
        if is_named:
            raise ConfigError(
                "the state is in an object store already",
                where=checkpoint.COPY_TO.name,
                got=config[checkpoint.COPY_TO],
                expected=f"no such place beside {run.STATE_DIR.name}",
                remedy="leave one of the keys out",
            )
        return config[run.STATE_DIR]
    return config[checkpoint.COPY_TO] if is_named else None
