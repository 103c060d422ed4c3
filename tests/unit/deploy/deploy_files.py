"""Reads the files below `deploy/` for the tests of this folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer.main
import yaml

from drivetrain.cli.main import app
from drivetrain.config import CONFIG_VARIABLE, environment_name
from drivetrain.config.catalog import ALL_KEYS

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "drivetrain"
TEMPLATES = sorted((CHART / "templates").iterdir())
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CONTAINERFILE = DEPLOY / "container" / "Containerfile"
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
VARIABLES = {environment_name(name) for name in ALL_KEYS} | {CONFIG_VARIABLE, "DRIVETRAIN_SECRET"}


def values() -> Any:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def options_of(command: str) -> set[str]:
    """The options of a subcommand of `drivetrain`."""
    return {option for parameter in COMMANDS[command].params for option in parameter.opts}


def unit(path: Path) -> dict[str, list[str]]:
    """The settings of a systemd unit, with all values of each."""
    settings: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        found = re.fullmatch(r"([A-Za-z]+)=(.*)", line)
        if found is not None:
            settings.setdefault(found[1], []).append(found[2])
    return settings
