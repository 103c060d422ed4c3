"""The notes in a state directory: small JSON files that are intact after any crash, see `DurableFile`.

Called by `run_directory`, and by commands that look for applications.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drivetrain.runtime.durable_file import DurableFile


def known_in(directory: Path) -> Mapping[str, Any]:
    """The notes of a state directory, like `RunDirectory.known`; raises `InputError` when it is damaged."""
    return read_notes(notes_in(directory))


def notes_in(directory: Path) -> DurableFile:
    """The file of notes about the application in a state directory."""
    return durable_notes(
        directory / "application.json",
        "what is known of the application's state",
        "put the file back from a backup, start from a savepoint, or start over with --fresh",
    )


def durable_notes(path: Path, what: str, if_damaged: str) -> DurableFile:
    """The file of notes at `path`; errors name it `what` and have the remedy `if_damaged`."""
    if_full = "make room, or make the state directory writable, and run the same command again: it goes on"
    return DurableFile(path, what, if_damaged=if_damaged, if_full=if_full)


def read_notes(file: DurableFile) -> dict[str, Any]:
    """The notes, empty when there are none; raises `InputError` when they are damaged."""
    content = file.read()
    if content is None:
        return {}
    try:
        return dict(json.loads(content))
    except ValueError as error:
        raise file.damaged(str(error)) from error


def write_notes(file: DurableFile, content: Mapping[str, Any]) -> None:
    """Replace the notes; raises `OutputError`."""
    file.write(json.dumps(content, default=str).encode())
