"""Samples of late messages, which came too late for a stateful processor, in a small file for each fragment.

Problem: someone who misses a message must be able to see that it came too late, and by how much, without the
late messages of months filling the disk.

Design: a fragment keeps its newest samples in one durable file, which is written as a whole; a sample has the
beginning of a message's text. What if we die here: the file has the previous samples, or the new ones; at
worst the samples of one batch are lost, which is allowed. A damaged file is replaced by the next samples.

Invariants:

1. A file has at most the configured number of samples, and at most `LONGEST` characters of each message.
2. The number of a sample is larger than those of all earlier ones of its fragment.

Called by `spark.repair.late_sampler`, which writes; `cli.inspection.late_messages` and
`console.handlers.late_messages` read.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from drivetrain.errors import InputError
from drivetrain.runtime.durable_file import DurableFile

log = logging.getLogger(__name__)

FOLDER: Final = "late-messages"
LONGEST: Final = 4_000
"""The most characters of a message that are kept."""

Position: TypeAlias = tuple[int, str, int]
"""Where a sample is among all: when it was stored, its fragment, its number there."""


class LateMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that came too late for `processor`, whose clock was at `clock_ms` before its batch.

    `message` is its columns as JSON, `is_cut` if the end is missing. `timestamp_ms` is the time of its event,
    `stored_ms` when the sample was stored (wall clock).
    """

    number: int
    processor: str
    message: str
    is_cut: bool
    timestamp_ms: int
    clock_ms: int
    batch: int
    stored_ms: int


class _Content(msgspec.Struct, frozen=True):
    samples: tuple[LateMessage, ...]


class LateSamples:
    """The samples of one fragment, below the state directory `home` of its application."""

    def __init__(self, home: Path, fragment: str) -> None:
        self.fragment: Final = fragment
        self._file: Final = DurableFile(
            home / FOLDER / f"{fragment}.json",
            "the samples of late messages",
            if_damaged="delete the file: new samples come with the next late messages",
            if_full="free some space: the application runs on without the samples",
        )

    def read(self) -> tuple[LateMessage, ...]:
        """The samples, oldest first; raises InputError when the file is damaged."""
        content = self._file.read_json(_Content)
        return () if content is None else content.samples

    def add(self, made: Callable[[int], Sequence[LateMessage]], keep: int) -> None:
        """Add the samples that `made` returns for their first number; the newest `keep` stay.

        Raises DiskFullError or OutputError when they cannot be written.
        """
        try:
            known = self.read()
        except InputError as error:
            log.warning("the samples of late messages begin anew: %s", error)
            known = ()
        added = made(known[-1].number + 1 if known else 0)
        self._file.path.parent.mkdir(parents=True, exist_ok=True)
        # As bytes without line ends: JSON writes those of messages as escapes.
        self._file.write(msgspec.json.encode(_Content((*known, *added)[-keep:])))


def samples_below(home: Path) -> list[LateSamples]:
    """The samples in the state directory of an application, by fragment."""
    try:
        names = sorted(path.stem for path in (home / FOLDER).iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []
    return [LateSamples(home, name) for name in names]


def newest_of(
    samples: Iterable[LateSamples], limit: int, before: Position | None = None
) -> list[tuple[Position, LateMessage]]:
    """At most `limit` samples, the newest first, all older than the position `before`.

    The samples of one fragment are in memory at the same time. Raises InputError when a file is damaged.
    """
    newest: list[tuple[Position, LateMessage]] = []
    for of_fragment in samples:
        own = [((one.stored_ms, of_fragment.fragment, one.number), one) for one in of_fragment.read()]
        older = [each for each in own if before is None or each[0] < before]
        newest = heapq.nlargest(limit, [*newest, *older], key=lambda each: each[0])
    return newest
