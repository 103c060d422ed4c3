"""The line of the user's file that declares an operator, so that every error can name it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

_OURS = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True)
class Location:
    """A line of the user's program: `file` as Python knows it, `line` from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


def caller() -> Location:
    """The nearest frame of the stack that is not Drivetrain's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)
