"""Shared parts of the commands for a cluster: their options, and a connected client.

Called by the commands for a cluster, and by commands that also work on applications of this machine.
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
from drivetrain.config.catalog import client as client_keys
from drivetrain.config.catalog import cluster as keys
from drivetrain.errors import ConfigError

if TYPE_CHECKING:
    from drivetrain.cluster.client import BlockingClient

MastersOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--masters", metavar="HOST:PORT,…", help="All masters of the cluster; sets cluster.masters."
    ),
]
ConsoleOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--console",
        metavar="URL",
        help="Reach the cluster through this console, in place of its masters; sets client.console.",
    ),
]
AppArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="APP", help="An application: its id, or its name.")
]

_BEFORE_IT: Final = "?token="
"""What is between the address of a console and the token, in what it prints."""
_ACTORS: Final = logging.getLogger("drivetrain.actor")


def cluster_sets(
    sets: Sequence[str] | None, masters: str | None, console: str | None = None
) -> dict[str, str]:
    """The settings of `--set`, `--masters` and `--console`; the last two win."""
    return with_masters(parse_sets(sets), masters, console)


def with_masters(sets: Mapping[str, str], masters: str | None, console: str | None = None) -> dict[str, str]:
    """The settings of `--set`, with those of `--masters` and `--console`, if given.

    Raises ConfigError for both.
    """
    if masters is not None and console is not None:
        raise ConfigError(
            "a cluster is reached through its masters or through a console",
            where="--masters, --console",
            remedy="leave one of them out",
        )
    given = dict(sets)
    if masters is not None:
        given |= {keys.MASTERS.name: masters, client_keys.CONSOLE.name: ""}
    if console is not None:
        address, _, token = console.partition(_BEFORE_IT)
        given[client_keys.CONSOLE.name] = address
        if token:  # kept out of the address, which is shown
            given[client_keys.CONSOLE_TOKEN.name] = token
    return given


def is_of_cluster(config: Config, state_dir: str | None) -> bool:
    """Whether a command, which can be about either, is about an application of a cluster: the configuration
    names a cluster, or a console, and no state directory was given."""
    named = any(s.key.name == keys.MASTERS.name and s.place != "default" for s in config)
    return (named or bool(config[client_keys.CONSOLE])) and state_dir is None


@contextlib.contextmanager
def connected(
    sets: Sequence[str] | None, config_file: Path | None, masters: str | None, console: str | None = None
) -> Iterator[BlockingClient]:
    """Connect a client for a command that takes no application file; raises ConfigError."""
    given = cluster_sets(sets, masters, console)
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
