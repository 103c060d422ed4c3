"""The windows, sessions, joins and deduplication of the model, as loops over lists; times in µs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import Message

Windows = dict[tuple[Any, int, int], list["Message"]]
"""Messages by key, start and end of their window."""


def sliding_windows(messages: Sequence[Message], size: int, slide: int) -> Windows:
    """A message is in every window [start, start + size) that contains its time; `start` is a multiple of
    `slide`."""
    windows: Windows = defaultdict(list)
    for message in messages:
        start = message.ts // slide * slide
        while start + size > message.ts:
            windows[message.key, start, start + size].append(message)
            start -= slide
    return windows


def session_windows(messages: Sequence[Message], gap: int) -> Windows:
    """A session of a key ends one gap after its last message; a message at that instant begins the next."""
    windows: Windows = {}
    by_key: dict[Any, list[Message]] = defaultdict(list)
    for message in sorted(messages, key=lambda m: m.ts):
        by_key[message.key].append(message)
    for key, own in by_key.items():
        run: list[Message] = []
        for message in own:
            if run and message.ts - run[-1].ts >= gap:
                windows[key, run[0].ts, run[-1].ts + gap] = run
                run = []
            run.append(message)
        windows[key, run[0].ts, run[-1].ts + gap] = run
    return windows


def everything_windows(messages: Sequence[Message], end: int) -> Windows:
    """One window for each key, which ends with the input."""
    windows: Windows = defaultdict(list)
    for message in messages:
        windows[message.key, 0, end].append(message)
    return windows


def summed(inside: Sequence[Message]) -> int:
    """The sum as the Python aggregations of the programs compute it: null counts as 0."""
    return sum(m.n or 0 for m in inside)


def deduplicated(messages: Sequence[Message], within: int, *, exact: bool) -> list[Message]:
    """In the order of time, a message passes if it is more than the span after the last one that passed."""
    passed: dict[Any, int] = {}
    kept = []
    for message in sorted(messages, key=lambda m: m.ts):
        name = (message.key, message.n, message.ts) if exact else message.key
        if name not in passed or message.ts - passed[name] > within:
            passed[name] = message.ts
            kept.append(message)
    return kept


def joined(left: Sequence[Message], right: Sequence[Message], within: int, how: str) -> list[Message]:
    """Pairs of equal keys, none of them null, at most the span apart; a pair has the later timestamp.

    In an outer join a message without a match is due when the clock is past everything that could match it.
    """
    from .model import Message

    made = []
    for one in left:
        matches = [
            Message(max(one.ts, other.ts), one.key, None if one.n is None else one.n + (other.n or 0))
            for other in right
            if one.key is not None and other.key == one.key and abs(one.ts - other.ts) <= within
        ]
        keeps = not matches and how in ("left", "full")
        made += [Message(one.ts, one.key, one.n, one.ts + within + 1)] if keeps else matches
    for other in right if how in ("right", "full") else ():
        matches_any = any(one.key == other.key and abs(one.ts - other.ts) <= within for one in left)
        if other.key is None or not matches_any:
            made.append(Message(other.ts, other.key, None, other.ts + within + 1))
    return made


def late_of(messages: Sequence[Message], *, is_loose: bool) -> Sequence[Message]:
    """The messages that may be late for a window: none, if all keep the promise."""
    return messages if is_loose else []


def as_of(left: Sequence[Message], right: Sequence[Message], *, keeps_all: bool) -> list[Message]:
    """Each message of the left side, with the time (ms) of the newest message of its key on the right up to
    then.

    It waits until the clock is past its time: then no message that it could see can arrive.
    """
    from .model import Message

    made = []
    for one in left:
        seen = [m.ts for m in right if one.key is not None and m.key == one.key and m.ts <= one.ts]
        if seen or keeps_all:
            more = max(seen) // 1000 if seen else 0
            made.append(Message(one.ts, one.key, None if one.n is None else one.n + more, one.ts + 1))
    return made


def earlier_counts(messages: Sequence[Message], span: int) -> list[Message]:
    """For each message the number of those of its key before it that are less than the span older.

    Among equal timestamps any may be the first: the counts are the same.
    """
    from .model import Message

    made, before = [], defaultdict[Any, list[int]](list)
    for message in sorted(messages, key=lambda m: m.ts):
        count = sum(ts > message.ts - span for ts in before[message.key])
        before[message.key].append(message.ts)
        made.append(Message(message.ts, message.key, count, message.ts + 1))
    return made


def pauses(messages: Sequence[Message], span_ms: int) -> list[Message]:
    """How many messages of a key followed each other by less than the span (in whole ms); known a span
    after the last one."""
    from .model import Message

    made, by_key = [], defaultdict[Any, list[int]](list)
    for message in messages:
        by_key[message.key].append(message.ts // 1000)
    for key, times in by_key.items():
        times.sort()
        row = 0
        for this, following in zip(times, [*times[1:], None], strict=True):
            row += 1
            if following is None or following >= this + span_ms:
                at = (this + span_ms) * 1000
                made.append(Message(at, key, row, at))
                row = 0
    return made
