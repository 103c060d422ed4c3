"""Reads the dead letters of all fragments of an application, in the order in which they were stored.

Problem: there may be millions, in many files, while the application stores more and drops the oldest. A
reader of page after page must see each once, and no more than a page may be in memory.

Design: each fragment numbers its messages; a message keeps its number when older ones are dropped. The
position of a page is, for each fragment, the number below which it continues. Parts of a store that are
before a page are skipped by their counts, without being read.

Invariants:

1. The pages that follow each other have each message that was stored before the first page once, except those
   that were dropped meanwhile.
2. One batch of each fragment, and one page, are in memory at a time.

Called by `cli.inspection.dead_letters`, `spark.batch.read_dead_letters`, `testing.scripted_run` and
`console.handlers.dead_letters`.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from drivetrain.errors import InputError, UnavailableError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.dead_letter_store import SCHEMA, STORED, DeadLetterStore

_TRIES: Final = 5


@dataclass(frozen=True)
class LetterPage:
    """A page: its messages, newest first, with `fragment`, `stored_ms` and
    `timestamp` as microseconds, and where the next one begins.

    `before` is by fragment the number of the oldest message on this page or an earlier one; None on the last.
    `count` messages are kept, and `dropped` older ones were deleted.
    """

    letters: list[dict[str, Any]]
    before: dict[str, int] | None
    count: int
    dropped: int


def stores_below(state: Path) -> list[DeadLetterStore]:
    """The dead letters in the state directory of an application, by fragment."""
    root = state / "dead-letters"
    fragments = sorted(root.iterdir()) if root.is_dir() else []
    return [DeadLetterStore(ChannelStore(str(fragment))) for fragment in fragments]


def newest_of(stores: Sequence[DeadLetterStore], limit: int | None = None) -> Iterator[dict[str, Any]]:
    """The newest messages of several fragments, at most `limit`, in the order in which they were stored.

    One batch of each fragment is in memory at a time.
    """
    totals = [store.messages for store in stores]
    wanted = [total if limit is None else min(total, limit) for total in totals]
    streams = [_rows(store, total - want) for store, total, want in zip(stores, totals, wanted, strict=True)]
    in_order = heapq.merge(*streams, key=lambda row: row[STORED])
    for row in itertools.islice(in_order, 0 if limit is None else max(0, sum(wanted) - limit), None):
        yield {name: row[name] for name in SCHEMA.names}


def page_of(
    stores: Sequence[DeadLetterStore], limit: int, before: Mapping[str, int] | None, longest: int
) -> LetterPage:
    """A page of at most `limit` messages: the newest, or those before the position of an earlier page.

    Of a message, its first `longest` + 1 characters are read, of an error its last. Raises MessageLossError
    and InputError for damaged files, and UnavailableError when messages are dropped faster than a page is
    read.
    """
    for _ in range(_TRIES):
        dropped = [store.dropped for store in stores]
        page = _readable(stores, limit, before, longest)
        if [store.dropped for store in stores] == dropped:  # else its numbers may be those of other messages
            return page
    raise UnavailableError(
        "the dead letters cannot be read right now",
        where=", ".join(store.channel.uri for store in stores),
        got="they are dropped faster than they are read",
        remedy="try again; dead-letters.keep-bytes keeps more of them",
    )


def _readable(
    stores: Sequence[DeadLetterStore], limit: int, before: Mapping[str, int] | None, longest: int
) -> LetterPage:
    try:
        return _page(stores, limit, before, longest)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(
            "a file of dead letters is damaged",
            where=", ".join(store.channel.uri for store in stores),
            got=str(error),
            remedy="delete it: the others can be read then",
        ) from error


def _page(
    stores: Sequence[DeadLetterStore], limit: int, before: Mapping[str, int] | None, longest: int
) -> LetterPage:
    kept = {Path(store.channel.uri).name: store.numbers for store in stores}
    begins: dict[str, int] = {}
    streams = []
    for (fragment, numbers), store in zip(kept.items(), stores, strict=True):
        # A fragment without a position began to store after the first page was read.
        end = numbers.stop if before is None else min(before.get(fragment, numbers.start), numbers.stop)
        end = max(end, numbers.start)
        first = begins[fragment] = max(numbers.start, end - limit)
        streams.append(_numbered(store, fragment, first, end, first - numbers.start, longest))
    newest: deque[dict[str, Any]] = deque(maxlen=limit)
    left: dict[str, int] = {}
    for row in heapq.merge(*streams, key=lambda row: row[STORED]):
        if len(newest) == limit:
            left[newest[0]["fragment"]] = newest[0]["number"] + 1
        newest.append(row)
    position = {fragment: left.get(fragment, first) for fragment, first in begins.items()}
    has_more = any(position[fragment] > numbers.start for fragment, numbers in kept.items())
    return LetterPage(
        list(reversed(newest)),
        position if has_more else None,
        sum(map(len, kept.values())),
        sum(numbers.start for numbers in kept.values()),
    )


def _numbered(
    store: DeadLetterStore, fragment: str, first: int, end: int, skip: int, longest: int
) -> Iterator[dict[str, Any]]:
    for number, row in zip(range(first, end), _rows(store, skip, longest), strict=False):
        yield {**row, "fragment": fragment, "number": number}


def _rows(store: DeadLetterStore, skip: int, longest: int | None = None) -> Iterator[dict[str, Any]]:
    for batch in store.batches(skip):
        yield from (batch if longest is None else _cut(batch, longest)).to_pylist()


def _cut(batch: pa.RecordBatch, longest: int) -> pa.RecordBatch:
    """The batch with the beginnings of its messages and the ends of its errors, one character too long."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["message"] = pc.utf8_slice_codeunits(columns["message"], 0, longest + 1)
    columns["error"] = pc.utf8_slice_codeunits(columns["error"], -longest - 1)
    columns["timestamp"] = columns["timestamp"].cast(pa.int64())  # years that a datetime does not have
    return pa.RecordBatch.from_pydict(columns)
