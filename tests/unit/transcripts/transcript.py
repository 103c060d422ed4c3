"""Runs transcripts: files that list, for a core, which events go in and which effects come out.

A transcript is a text file. Everything in it but the outputs is written by people:

    # A comment.
    new  a=1                     a new core, with arguments
    0    TimePassed()            at 0 ms an event, as Python writes it
         -> RequestVote(term=1)  output: an effect
         =  follower, term 0     output: the state afterwards
         !! InternalError: ...   output: the event was refused

With TESTS_REWRITE=1 the outputs are rewritten, to be read in the diff.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import msgspec

from drivetrain.errors import DrivetrainError

_OUTPUT = re.compile(r"^ +(->|=|!!)  ?\S")
_EVENT = re.compile(r"^(\d+) +(\S.*)$")
_NEW = re.compile(r"^new(?:  +(\S.*))?$")
_INDENT = " " * 6


class Player(Protocol):
    """One core as a transcript drives it."""

    def names(self) -> Mapping[str, Any]:
        """The names that the text of an event may use."""

    def step(self, event: Any, now_ms: int) -> list[Any]:
        """Take an event; returns the effects."""

    def state(self) -> str:
        """The state in a few words."""


def check(path: Path, make: Callable[..., Player]) -> None:
    """Play the transcript in `path`; its outputs must be what the core does, or are rewritten."""
    given = path.read_text()
    found = "\n".join(_played(given.splitlines(), make)) + "\n"
    if os.environ.get("TESTS_REWRITE") == "1":
        path.write_text(found)
        return
    assert found == given, f"{path.name} differs; TESTS_REWRITE=1 writes what happens now"


def _played(lines: list[str], make: Callable[..., Player]) -> list[str]:
    written: list[str] = []
    player: Player | None = None
    last = ""
    for line in lines:
        if _OUTPUT.match(line):
            continue
        written.append(line)
        if begun := _NEW.match(line):
            player = eval(f"make({begun[1] or ''})", {"make": make})
            last = player.state()
            written.append(f"{_INDENT}=  {last}")
        elif event := _EVENT.match(line):
            assert player is not None, "a transcript begins with new"
            written += [f"{_INDENT}{output}" for output in _outputs(player, event[2], int(event[1]))]
            if player.state() != last:
                last = player.state()
                written.append(f"{_INDENT}=  {last}")
        else:
            assert not line or line.startswith("#"), f"neither an event nor a comment: {line}"
    return written


def _outputs(player: Player, text: str, now_ms: int) -> list[str]:
    try:
        event = eval(text, dict(player.names()))
        return [f"-> {shown(effect)}" for effect in player.step(event, now_ms)]
    except DrivetrainError as error:
        return [f"!! {type(error).__name__}: {error.what}"]


def shown(value: object) -> str:
    """A value in one line: records without the fields that have their defaults."""
    if isinstance(value, Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(f.name, f.default) for f in dataclasses.fields(value)]
    elif isinstance(value, msgspec.Struct):
        fields = [(f.name, f.default) for f in msgspec.structs.fields(value)]
    elif isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    elif isinstance(value, tuple | list | frozenset):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    else:
        return str(value)
    given = [(name, getattr(value, name)) for name, default in fields if getattr(value, name) != default]
    return f"{type(value).__name__}({', '.join(f'{n}={shown(v)}' for n, v in given if v != {})})"
