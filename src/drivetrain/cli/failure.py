"""Shows an error: as one screen on the standard error stream, or as an object in JSON.

Called by `cli.main` for every command, and by the commands that promise JSON.
"""

from __future__ import annotations

import traceback
from typing import Final

from drivetrain.config.references import scrub
from drivetrain.errors import DrivetrainError, InternalError
from drivetrain.terminal import Console, Text, print_line

_MOST_CHARACTERS: Final = 600
_MOST_TRACEBACK_LINES: Final = 24


def show_error(error: DrivetrainError, console: Console | None = None) -> None:
    """Print the error to standard error, red where that is a terminal: what, expected, got, remedy."""
    scrub(error)
    console = console or Console(stderr=True)
    console.soft_wrap = True
    where = "" if error.where is None else f"{error.where}: "
    console.print(Text.assemble(("error: ", "bold red"), (_cut(f"{where}{error.what}"), "red")))
    for label, value in _details(error):
        console.print(Text.assemble((f"  {label}: ", "bold red"), (_cut(value), "red")))
    user_traceback = getattr(error, "user_traceback", None)
    if user_traceback:
        console.print(Text(_last_lines(str(user_traceback)), "red"))
    if error.remedy is not None:
        console.print(Text.assemble(("  remedy: ", "bold"), error.remedy))


def show_bug(error: BaseException, console: Console | None = None) -> None:
    """Print an error that Drivetrain did not raise on purpose, with its traceback, and ask for a report."""
    scrub(error)
    console = console or Console(stderr=True)
    print_line("".join(traceback.format_exception(error)), console.file, end="")
    show_error(InternalError(f"{type(error).__name__}: {error}"), console)


def error_as_data(error: DrivetrainError) -> dict[str, object]:
    """The error for `--json`: its code and fields; missing fields are null."""
    scrub(error)
    return {
        "code": error.code,
        "exit_code": error.exit_code,
        "what": error.what,
        "where": error.where,
        "expected": error.expected,
        "got": error.got,
        "remedy": error.remedy,
        "message": getattr(error, "message", None),
        "traceback": getattr(error, "user_traceback", None),
    }


def _details(error: DrivetrainError) -> list[tuple[str, str]]:
    details = [
        ("message", getattr(error, "message", None)),
        ("expected", error.expected),
        ("got", error.got),
        *(("before", step) for step in getattr(error, "history", ())[-10:]),
    ]
    return [(label, value) for label, value in details if value is not None]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}… ({len(text)} characters)"


def _last_lines(text: str) -> str:
    lines = text.rstrip().splitlines()
    left_out = len(lines) - _MOST_TRACEBACK_LINES
    return "\n".join(lines if left_out <= 0 else [f"  … {left_out} lines …", *lines[-_MOST_TRACEBACK_LINES:]])
