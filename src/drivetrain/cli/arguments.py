"""Options of several commands: `--set`, `--config`, `--state-dir`, and the configuration they produce.

The configuration file is that of `--config`, else of the environment variable DRIVETRAIN_CONFIG, else
`drivetrain.toml` in the current directory if it exists. When the configuration names no masters, they are
those of the cluster that `drivetrain local` runs in this directory; its secret is found, too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from drivetrain.api.durations import milliseconds
from drivetrain.config import CONFIG_VARIABLE, Config, find_key
from drivetrain.config.catalog import cluster, run
from drivetrain.errors import ConfigError, GraphError, UserError
from drivetrain.private_files import require_trusted

DEFAULT_FILE: Final = "drivetrain.toml"
LOCAL_CLUSTER_FILE: Final = Path(".drivetrain/cluster.toml")
"""The file with the masters and the secret file of the cluster that `drivetrain local` runs here."""

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
        "--config", metavar="FILE", help="The configuration file; by default drivetrain.toml, if it exists."
    ),
]
StateDirOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="Directory of checkpoints and channels, or a place in an object store; sets state.dir.",
    ),
]
SavepointOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLACE",
        help="Start from this savepoint (see `drivetrain savepoint`); there must be no state yet.",
    ),
]
LogFormatOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--log-format", metavar="FORMAT", help="text, or json: one object a line; sets log.format."),
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else.")
]


def parse_sets(given: Sequence[str] | None, state_dir: str | None = None) -> Mapping[str, str]:
    """Parse NAME=VALUE texts into a mapping; the last value of a name counts, and `state_dir` before all.

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


def duration_ms(text: str, option: str) -> int:
    """The milliseconds of a duration that an option of a command has; raises UserError, which names it."""
    try:
        return milliseconds(text, option)
    except GraphError as error:  # it names the line that declares an operator; a command has none
        raise UserError(error.what, expected=error.expected, got=error.got, remedy=error.remedy) from None


def load_config(file: Path | None, sets: Mapping[str, str], *, finds_local: bool = True) -> Config:
    """Load this command's configuration; names in `sets` that are not keys belong to the application.

    With `finds_local`, masters and secret are those of the cluster that `drivetrain local` runs here, unless
    the configuration names another one. Raises UserError when others can write what names that cluster:
    submissions, with their code, would go to their masters.
    """
    environ, file = os.environ, config_file(file)
    given = {name: raw for name, raw in sets.items() if find_key(name) is not None}
    config = Config.load(file, environ, given)
    if not finds_local or not os.path.isfile(LOCAL_CLUSTER_FILE):  # not there, or another user's
        return config
    for each in (LOCAL_CLUSTER_FILE.parent, LOCAL_CLUSTER_FILE):
        require_trusted(each, "what names the local cluster")
    local = Config.load(LOCAL_CLUSTER_FILE)
    explicit = {setting.key.name for setting in config if setting.place != "default"}
    if cluster.MASTERS.name in explicit and _places(config) != _places(local):
        return config
    found = {
        key.name: local[key] for key in (cluster.MASTERS, cluster.SECRET_FILE) if key.name not in explicit
    }
    return Config.load(file, environ, {**given, **found})


def config_file(given: Path | None) -> Path | None:
    """The configuration file: the given one, else that of the environment, else that of this directory.

    Raises UserError for one of this directory that someone else has left there, as anyone can in `/tmp`.
    """
    if given is None and os.environ.get(CONFIG_VARIABLE):
        return Path(os.environ[CONFIG_VARIABLE])
    if given is None and Path(DEFAULT_FILE).exists():
        _require_not_planted(Path(DEFAULT_FILE))
        return Path(DEFAULT_FILE)
    return given


def _require_not_planted(found: Path) -> None:
    """Raise UserError unless a file belongs to this user, root or the owner of its directory."""
    owner = found.stat().st_uid
    reason = None
    if owner not in (os.geteuid(), 0, found.resolve().parent.stat().st_uid):
        reason = f"it belongs to user {owner}, who owns neither this directory nor this process"
    elif found.stat().st_mode & stat.S_IWOTH:
        reason = "everybody can write to it"
    if reason is not None:
        raise UserError(
            "this configuration may be someone else's; it names the cluster that your code is sent to",
            where=str(found.absolute()),
            got=reason,
            remedy=f"if it is yours, take it over (chown, chmod o-w) or name it: --config {found}",
        )


def _places(config: Config) -> set[str]:
    return {place.strip() for place in config[cluster.MASTERS].split(",")}
