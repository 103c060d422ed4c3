"""What several commands take: `--set`, `--config`, `--state-dir`, and the configuration they make.

The configuration file is the one of `--config`, else of the environment variable DRIVETRAIN_CONFIG, else
`drivetrain.toml` in the current directory when there is one. The masters, when nothing says who they are, are
those of the cluster that `drivetrain local` runs in this directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from drivetrain.config import CONFIG_VARIABLE, Config, find_key
from drivetrain.config.catalog import cluster, run
from drivetrain.errors import ConfigError

DEFAULT_FILE: Final = "drivetrain.toml"
LOCAL_CLUSTER_FILE: Final = Path(".drivetrain/cluster.toml")
"""Holds the masters of the cluster that `drivetrain local` runs here, while it does."""

FileArgument: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="FILE", help="The application: a Python file, or FILE:NAME for one of several."),
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a setting of the application or a configuration key; may be given several times.",
    ),
]
ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The configuration file; drivetrain.toml when there is one."
    ),
]
StateDirOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--state-dir", metavar="DIR", help="Where checkpoints and channels are kept; sets state.dir."
    ),
]
SavepointOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLACE",
        help="Go on from this savepoint (see `drivetrain savepoint`); there must be no state yet.",
    ),
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")
]


def parse_sets(given: Sequence[str] | None, state_dir: str | None = None) -> Mapping[str, str]:
    """Read NAME=VALUE texts into a mapping by name; the last of a name counts, `state_dir` most.

    Raises ConfigError for a text without a name or an equals sign.
    """
    sets: dict[str, str] = {}
    for written in given or ():
        name, equals, value = written.partition("=")
        if not equals or not name.strip():
            raise ConfigError(
                "--set needs a name and a value",
                expected="--set NAME=VALUE",
                got=f"--set {written}",
                remedy="add both",
            )
        sets[name.strip()] = value
    if state_dir is not None:
        sets[run.STATE_DIR.name] = state_dir
    return sets


def load_config(file: Path | None, sets: Mapping[str, str]) -> Config:
    """Load this command's configuration; names in `sets` that are no keys are the application's."""
    environ = os.environ
    if file is None and environ.get(CONFIG_VARIABLE):
        file = Path(environ[CONFIG_VARIABLE])
    if file is None and Path(DEFAULT_FILE).exists():
        file = Path(DEFAULT_FILE)
    given = {name: raw for name, raw in sets.items() if find_key(name) is not None}
    config = Config.load(file, environ, given)
    is_said = any(s.key.name == cluster.MASTERS.name and s.place != "default" for s in config)
    if is_said or not LOCAL_CLUSTER_FILE.is_file():
        return config
    masters = Config.load(LOCAL_CLUSTER_FILE)[cluster.MASTERS]
    return Config.load(file, environ, {**given, cluster.MASTERS.name: masters})
