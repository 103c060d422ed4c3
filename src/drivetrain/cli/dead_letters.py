"""`drivetrain dead-letters`: shows the messages that an application could not process.

Called by `cli.main`. Takes the file and the settings of the run, which say where its state is; needs
no Spark.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from drivetrain.cli.arguments import (
    ConfigOption,
    FileArgument,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.standard_output import standard_output_reserved
from drivetrain.code.application_file import load_application


def dead_letters_command(
    file: FileArgument,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most so many, the newest.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show what went to the dead letters: operator, message, where it came from, and the error."""
    with standard_output_reserved() as output:
        given = parse_sets(sets, state_dir)
        config = load_config(config_file, given)
        application = load_application(file, given)
        from drivetrain.spark.dead_letters import dead_letters

        letters = dead_letters(application, config)
        newest = letters.slice(max(0, letters.num_rows - limit)).to_pylist()
        if as_json:
            json.dump({"count": letters.num_rows, "dead_letters": newest}, output, default=str)
            output.write("\n")
            return
    console = Console(file=sys.stdout, highlight=False)
    if not newest:
        console.print("no dead letters")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("operator", "message", "from", "error"):
        table.add_column(heading, overflow="fold")
    for letter in newest:
        place = f"{letter['file']}:{letter['line']}" if letter["file"] else ""
        error = str(letter["error"]).strip().splitlines()[-1]
        table.add_row(
            letter["operator"], Text(str(letter["message"])), Text(place, "dim"), Text(error, "red")
        )
    console.print(table)
    console.print(f"{len(newest)} of {letters.num_rows} dead letters; --json has the whole tracebacks")
