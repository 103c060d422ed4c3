"""Applications whose processes all run on one worker: those whose state is in an object store.

Problem: the files by which executors and their application master work together need one directory that all
of them reach, with locks and renames. An object store has neither; without a shared file system, that is a
directory of one machine.

Design: the leader places the application master on a worker with enough free slots for all executors, and
its launch holds these slots. The executors take none of their own, and run on the same worker, in a directory
below the worker's own (docs/decisions/0188-an-application-with-a-remote-state-runs-on-one-worker.md). So no
application has a part of its slots and waits for the rest.

Called by the leader and by application masters. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.config import Config
from drivetrain.config.catalog import application as keys
from drivetrain.config.catalog import run as run_keys
from drivetrain.errors import ConfigError, DrivetrainError
from drivetrain.runtime.state_place import is_remote

_REMEDY = (
    f"start a worker with more slots, or ask for fewer: {keys.EXECUTORS.name}, {keys.EXECUTOR_SLOTS.name}"
)
WHY = f"an application whose state is in an object store runs on one worker; {_REMEDY}"
"""What to tell a user whose application finds no worker with enough slots."""


def slots_together(config: Config) -> int:
    """The slots that all executors of an application take on one worker; 0 if each may run on any.

    >>> sets = {"state.dir": "s3://states/shop", "app.executors": "2", "app.executor-slots": "4"}
    >>> slots_together(Config.load(None, {}, sets))
    8
    """
    return config[keys.EXECUTORS] * config[keys.EXECUTOR_SLOTS] if is_remote(config) else 0


def slots_of(spec: ApplicationSpec) -> int:
    """The same for an application as it was submitted; 0 if its configuration is faulty."""
    return 0 if spec.app_master is not None else slots_together(_submitted(spec))


def policy_of(spec: ApplicationSpec) -> str:
    """The placement policy for an application as it was submitted."""
    return _submitted(spec)[keys.PLACEMENT]


def _submitted(spec: ApplicationSpec) -> Config:
    """The configuration of an application; the defaults if it is faulty, which its processes report."""
    try:
        return Config.load(None, {}, spec.config)
    except DrivetrainError:
        return Config()


def require_held(config: Config, held: int) -> None:
    """Raise ConfigError unless the launch of an application master `held` slots for all its executors."""
    wanted = slots_together(config)
    if held < wanted:
        raise ConfigError(
            "the application was placed without slots for its executors, which share its worker",
            where=run_keys.STATE_DIR.name,
            expected=f"{wanted} slots",
            got=f"{held}: the configuration of its worker differs from the one it was submitted with",
            remedy=f"submit it with {run_keys.STATE_DIR.name}, {keys.EXECUTORS.name} and "
            f"{keys.EXECUTOR_SLOTS.name} in its configuration",
        )
