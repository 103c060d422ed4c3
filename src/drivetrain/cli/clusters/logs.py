"""`drivetrain logs`: the output of an application's processes.

Called by `cli.main`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption
from drivetrain.cli.cluster_access import AppArgument, ConsoleOption, MastersOption, connected
from drivetrain.cli.json_output import print_json
from drivetrain.terminal import print_line

if TYPE_CHECKING:
    from drivetrain.cluster.client import Piece


def logs_command(
    app: AppArgument,
    process: Annotated[
        str | None,
        typer.Option("--process", metavar="P", help="Show only this process; by default all, with names."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Keep printing new lines until the application has ended."),
    ] = False,
    kib: Annotated[
        int, typer.Option("--kib", min=1, max=4096, help="KiB to show from the end of each log.")
    ] = 64,
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the logs of an application's processes: the application master and its executors."""
    with connected(sets, config_file, masters, console) as client:
        if not follow:
            pieces = client.logs(app, process, max_bytes=kib * 1024)
            if as_json:
                print_json({"logs": [_as_data(piece) for piece in pieces]}, sys.stdout)
            else:
                show_pieces(pieces, prefixed=process is None)
            return
        for piece in client.follow_logs(app, process, max_bytes=kib * 1024):
            if piece is None:
                continue
            if as_json:
                print_line(json.dumps(_as_data(piece)), flush=True)
            else:
                show_pieces([piece], prefixed=process is None)


def _as_data(piece: Piece) -> dict[str, str]:
    return {
        "process": piece.process,
        "worker": piece.worker,
        "text": piece.data.decode("utf-8", errors="replace"),
    }


def show_pieces(pieces: Iterable[Piece], *, prefixed: bool) -> None:
    """Print lines of logs, each after the name of its process if `prefixed`."""
    for piece in pieces:
        prefix = f"{piece.process} | " if prefixed else ""
        for line in piece.data.decode("utf-8", errors="replace").splitlines():
            print_line(f"{prefix}{line}")
    sys.stdout.flush()
