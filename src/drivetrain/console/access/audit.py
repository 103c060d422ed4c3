"""The audit log: one line for every write that is requested, before it is performed.

Problem: when an application was killed, its owners need to know by whom, from where, and when.

Design: a line of JSON in the file `audit.log` in the directory of the console, and in its log. The line comes
first, so no write is without one; a write whose line cannot be written is refused. Texts from users are JSON
strings, so a name cannot begin a line of its own. The file grows by a line for each write; at `LARGEST_BYTES`
it becomes `audit.log.1`, and the previous `audit.log.1` is deleted.

Called by `console.services`, which endpoints use.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from drivetrain.console.access.roles import Caller
from drivetrain.errors import UnavailableError
from drivetrain.private_files import make_private_directory, private

LARGEST_BYTES: Final = 64 * 2**20
_LONGEST: Final = 300

log = logging.getLogger("drivetrain.console.audit")


class Audit:
    """The audit log in `directory`."""

    def __init__(self, directory: Path) -> None:
        make_private_directory(directory, "the directory of the console")
        self._path: Final = directory / "audit.log"

    def note(self, caller: Caller, what: str, about: Mapping[str, str]) -> None:
        """Record that a caller asks for a write; raises UnavailableError when that cannot be recorded."""
        line = json.dumps(
            {
                "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "who": caller.name,
                "role": caller.role.shown,
                "means": caller.means,
                "from": caller.address,
                "what": what,
                **{name: value[:_LONGEST] for name, value in about.items()},
            }
        )
        try:
            self._append(line)
        except OSError as error:
            raise UnavailableError(
                "the console cannot record this request in its audit log, so it refuses it",
                where=str(self._path),
                got=str(error),
                remedy="free some space for the audit log, or allow the console to write there",
            ) from error
        log.info("%s", line)

    def _append(self, line: str) -> None:
        with open(self._path, "ab", opener=private) as file:
            file.write(line.encode() + b"\n")
            size = file.tell()
        if size >= LARGEST_BYTES:
            os.replace(self._path, self._path.with_suffix(".log.1"))
