"""`drivetrain wait`: waits until an application of a cluster has ended, or its clock has reached a time.

For scripts: "when all of March is counted, then …". Exit codes: 0 when it has; 4 when it has not in time;
2 when the application ends first.

Called by `cli.main`.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption, duration_ms
from drivetrain.cli.cluster_access import AppArgument, ConsoleOption, MastersOption, connected
from drivetrain.cli.clusters.apps import view_as_data
from drivetrain.cli.json_output import print_json
from drivetrain.core.figures import show_clock
from drivetrain.terminal import print_line

_TIMEOUT: Final = "1 h"


def wait_command(
    app: AppArgument,
    clock: Annotated[
        str | None,
        typer.Option(
            "--clock",
            metavar="TIME",
            help="Wait until all messages older than this event time have been processed: "
            "2013-03-01T00:00 (UTC unless it has a zone), or ms since 1970.",
        ),
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="How long to wait.")] = _TIMEOUT,
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until an application has ended, or its clock has reached a time."""
    duration_ms(timeout, "--timeout")  # rejects an invalid duration before connecting
    with connected(sets, config_file, masters, console) as client:
        if clock is None:
            view = client.wait(app, timeout)
            text, data = f"{view.app_id} is {view.state.value}", view_as_data(view, ())
        else:
            clock_ms = client.wait_clock(app, clock, timeout)
            text, data = f"the clock is at {show_clock(clock_ms)}", {"clock_ms": clock_ms}
    if as_json:
        print_json(data, sys.stdout)
        return
    print_line(text)
