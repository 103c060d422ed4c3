"""`drivetrain config`: every configuration key with its value and where the value came from.

Called by `cli.main`.
"""

from __future__ import annotations

import json
from typing import Any

from rich.padding import Padding

from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption, load_config, parse_sets
from drivetrain.config import Config, Setting, environment_name, split_sets
from drivetrain.terminal import Console, Text, print_line


def config_command(
    sets: SetOption = None, config_file: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List every configuration key with its value, where that came from, and what it does."""
    given = parse_sets(sets)
    split_sets(given, ())
    config = load_config(config_file, given)
    if as_json:
        print_line(json.dumps([_as_data(setting) for setting in config]))
        return
    show_settings(config, Console())


def show_settings(config: Config, console: Console) -> None:
    """Print every key with its value, where that came from, and what it does."""
    for setting in config:
        changed = setting.place != "default"
        heading = Text.assemble(
            (setting.key.name, "bold"), " = ", (setting.shown, "bold green" if changed else "")
        )
        console.print(heading.append(f"   ({setting.place})", "" if changed else "dim"), soft_wrap=True)
        console.print(Padding(Text(setting.key.doc, "dim"), (0, 0, 0, 4)))


def _as_data(setting: Setting[Any]) -> dict[str, object]:
    return {
        "key": setting.key.name,
        "value": setting.shown,
        "from": setting.place,
        "default": setting.key.parse.show(setting.key.default_value),
        "environment": environment_name(setting.key.name),
        "expected": setting.key.parse.expected,
        "doc": setting.key.doc,
    }
