"""`drivetrain late-messages`: shows samples of the messages that came too late for an application.

Called by `cli.main`. Takes the file and the settings of the run, which determine its state directory; needs
no Spark.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from drivetrain.cli.arguments import (
    ConfigOption,
    FileArgument,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.cluster_access import ConsoleOption, with_masters
from drivetrain.cli.inspection.console_queries import is_through_console, read_late_messages
from drivetrain.cli.json_output import as_data
from drivetrain.cli.standard_output import standard_output_reserved
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.figures import show_clock, show_span
from drivetrain.private_files import Writers
from drivetrain.runtime.late_samples import LateMessage, Position, newest_of, samples_below
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.state_place import state_home
from drivetrain.terminal import Console, Table


def late_messages_command(
    file: FileArgument,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Number of samples to show, the newest.")] = 50,
    console: ConsoleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show samples of late messages: processor, message, its time, and the clock then. With --console, FILE
    is the application's id or name."""
    with standard_output_reserved() as output:
        given = parse_sets(sets, state_dir)
        config = load_config(config_file, with_masters(given, None, console))
        if is_through_console(config, state_dir):
            found = read_late_messages(config, file, limit)
        else:
            found = newest_of(samples_below(_state_of(file, given, config)), limit)
        if as_json:
            samples = [{"fragment": position[1], **as_data(sample)} for position, sample in reversed(found)]
            output.write(json.dumps({"late_messages": samples}) + "\n")
            return
    show_late(found, Console(file=sys.stdout))


def _state_of(file: str, given: Mapping[str, str], config: Config) -> Path:
    """The state directory of the application in a file."""
    application = load_application(file, given)
    settings, writers = application.naming_settings, Writers(config[run_keys.WRITERS])
    return RunDirectory(state_home(config), application.name, settings, writers).path


def show_late(found: Sequence[tuple[Position, LateMessage]], console: Console) -> None:
    """Print samples, of which the first is the newest, as a table with the oldest first."""
    if not found:
        console.print("no samples of late messages; `drivetrain show` and the summary of a run count all")
        return
    table = Table()
    table.add_names("processor", "message")
    for heading in ("time (UTC)", "clock then (UTC)", "behind it"):
        table.add_column(heading, no_wrap=True)
    for _, one in reversed(found):
        behind = show_span(max(0, one.clock_ms - one.timestamp_ms))
        table.add_row(
            one.processor, one.message, show_clock(one.timestamp_ms), show_clock(one.clock_ms), behind
        )
    console.print(table)
    console.print(f"{len(found)} samples; `drivetrain show` and the summary of a run count all late messages")
