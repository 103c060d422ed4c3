"""Shared parts of the commands for a cluster: their options, and a connected client.

Called by the commands for a cluster, and by those that are for applications of this machine, too.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from drivetrain.cli.arguments import load_config, parse_sets
from drivetrain.config import Config, split_sets
from drivetrain.config.catalog import cluster as keys

if TYPE_CHECKING:
    from drivetrain.cluster.client import BlockingClient

MastersOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--masters", metavar="HOST:PORT,…", help="All masters of the cluster; sets cluster.masters."
    ),
]
AppArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="APP", help="An application: its id, or its name.")
]

_ACTORS: Final = logging.getLogger("drivetrain.actor")


def cluster_sets(sets: Sequence[str] | None, masters: str | None) -> dict[str, str]:
    """The settings of `--set` and `--masters`; the latter wins."""
    return with_masters(parse_sets(sets), masters)


def with_masters(sets: Mapping[str, str], masters: str | None) -> dict[str, str]:
    """The settings of `--set`, with those of `--masters`, if given."""
    return dict(sets) if masters is None else {**sets, keys.MASTERS.name: masters}


def is_of_cluster(config: Config, state_dir: str | None) -> bool:
    """Whether a command for both is about an application of a cluster: the configuration names a cluster,
    and no state directory was given."""
    named = any(s.key.name == keys.MASTERS.name and s.place != "default" for s in config)
    return named and state_dir is None


@contextlib.contextmanager
def connected(
    sets: Sequence[str] | None, config_file: Path | None, masters: str | None
) -> Iterator[BlockingClient]:
    """Connect a client for a command that takes no application file; raises ConfigError."""
    given = cluster_sets(sets, masters)
    split_sets(given, ())
    with connected_by(load_config(config_file, given)) as client:
        yield client


@contextlib.contextmanager
def connected_by(config: Config) -> Iterator[BlockingClient]:
    """Connect a client of the cluster in `config`."""
    from drivetrain.cluster.client import connect

    with quiet_actors(), connect(config) as client:
        yield client


@contextlib.contextmanager
def quiet_actors() -> Iterator[None]:
    """Silence the actor system's log: an unreachable master is reported once, as an error."""
    before = _ACTORS.level
    if before == logging.NOTSET:
        _ACTORS.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        _ACTORS.setLevel(before)
