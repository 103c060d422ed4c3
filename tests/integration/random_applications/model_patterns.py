"""Patterns in plain Python: for each first message, the messages after it are searched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .model import Message
    from .recipe import Match


class Found(NamedTuple):
    """A match: the index of the last message in its span that belongs to it, its time, and its n."""

    last: int
    ts: int
    n: int


def matches(step: Match, messages: Sequence[Message]) -> list[Message]:
    """The matches of each key; each is due when the clock is past its time."""
    from .model import Message

    by_key = defaultdict[Any, list[Message]](list)
    for message in messages:
        by_key[message.key].append(message)
    made = []
    for key, mine in by_key.items():
        # Messages of one key and time come in the order of their content as text.
        mine.sort(key=lambda m: (m.ts, f"{m.n},"))
        made += [Message(found.ts, key, found.n, found.ts + 1) for found in _of_key(step, mine)]
    return made


def _of_key(step: Match, mine: Sequence[Message]) -> list[Found]:
    begun = [found for at in range(len(mine)) if (found := _begun_at(step, mine, at)) is not None]
    if step.overlapping:
        return begun
    found: list[Found] = []
    at = 0
    while True:
        complete = [
            one for start in range(at, len(mine)) if (one := _begun_at(step, mine, start)) is not None
        ]
        if not complete:
            return found
        found.append(min(complete, key=lambda one: (one.last, one.ts)))
        at = found[-1].last + 1


def _begun_at(step: Match, mine: Sequence[Message], at: int) -> Found | None:
    """The match that begins with a message, if there is one."""
    first = mine[at]
    if first.n is None or first.n % 3 != 0:
        return None
    end = first.ts + step.within_ms * 1000
    inside = [i for i in range(at + 1, len(mine)) if mine[i].ts <= end]
    match step.how:
        case "pair":
            for i in inside:
                n = mine[i].n
                if n is not None and n > first.n:
                    return Found(i, mine[i].ts, n - first.n)
            return None
        case "absent":
            if any(n is not None and n % 3 == 1 for n in (mine[i].n for i in inside)):
                return None
            return Found(inside[-1] if inside else at, end, first.n)
        case "repeated":
            count = 1
            for i in inside:
                n = mine[i].n
                if n is not None and n % 3 == 1 and count > 1:
                    return Found(i, mine[i].ts, count * 1000 + n)
                count += n is not None and n % 3 == 0
            return None
