"""`drivetrain dead-letters`: shows the messages that an application could not process.

Called by `cli.main`. Takes the file and the settings of the run, which determine its state directory; needs
no Spark.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

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
from drivetrain.cli.inspection.console_queries import is_through_console, read_dead_letters
from drivetrain.cli.standard_output import standard_output_reserved
from drivetrain.code.application_file import load_application
from drivetrain.terminal import Console, Table, Text


def dead_letters_command(
    file: FileArgument,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Number of dead letters to show, the newest.")
    ] = 50,
    console: ConsoleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the dead letters: operator, message, origin and error. With --console, FILE is the application's
    id or name."""
    with standard_output_reserved() as output:
        given = parse_sets(sets, state_dir)
        config = load_config(config_file, with_masters(given, None, console))
        if is_through_console(config, state_dir):
            letters, count, dropped = read_dead_letters(config, file, limit)
            if as_json:
                data = {"count": count, "dropped": dropped, "dead_letters": letters}
                output.write(json.dumps(data) + "\n")
            else:
                show_letters(letters, count, dropped, Console(file=output))
            return
        application = load_application(file, given)
        from drivetrain.runtime.dead_letter_pages import newest_of
        from drivetrain.spark.batch.read_dead_letters import dead_letter_stores

        stores = dead_letter_stores(application, config)
        count, dropped = sum(s.messages for s in stores), sum(s.dropped.messages for s in stores)
        newest = newest_of(stores, limit)
        if as_json:
            output.write(f'{{"count": {count}, "dropped": {dropped}, "dead_letters": [')
            for number, letter in enumerate(newest):  # one at a time: there may be many
                output.write(f"{', ' if number else ''}{json.dumps(letter, default=str)}")
            output.write("]}\n")
            return
    show_letters(newest, count, dropped, Console(file=sys.stdout))


def show_letters(newest: Iterable[Mapping[str, Any]], count: int, dropped: int, console: Console) -> None:
    """Print the newest of `count` dead letters as a table; `dropped` older ones were deleted."""
    if not count:
        console.print("no dead letters" + _dropped(dropped))
        return
    table = Table()
    table.add_names("operator", "message", "from", "error")
    for letter in newest:
        place = f"{letter['file']}:{letter['line']}" if letter["file"] else ""
        error = str(letter["error"]).strip().rpartition("\n")[2]
        table.add_row(letter["operator"], str(letter["message"]), Text(place, "dim"), Text(error, "red"))
    console.print(table)
    console.print(
        f"{table.row_count} of {count} dead letters; --json has the whole tracebacks{_dropped(dropped)}"
    )


def _dropped(messages: int) -> str:
    return f"; {messages} older ones were dropped" if messages else ""
