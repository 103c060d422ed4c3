"""Matches of a pattern: which sequences of messages of a key are complete, and which may become so.

Problem: a pattern is a sequence of steps within a span of event time, with messages that must not come
between. Which messages belong to a match must not depend on batches or on the order of arrival.

Design: messages of a key come in the order of their times. Each message that fulfils the first step begins a
**partial match**. A partial match takes the first message that fulfils its next step; it has no choice, so
each first message has at most one match. A step with `repeats` takes messages until one fulfils the next
step. A partial match ends without a match when its span is over, or when a message comes that must not come
between.

After a match, all partial matches of its key end: matches of a key do not overlap, and the earliest first
message wins. With `overlapping` the others continue.

A pattern that ends with `absent` is complete when its span is over without such a message.

Messages are known by numbers that the caller gives. Times are microseconds since the epoch.

Invariants:

1. All messages of a match are within the span of its first one.
2. The matches do not depend on when `pass_time` is called, if no earlier message follows.

Called by `spark.compile.pattern_matching` for each bucket of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from drivetrain.errors import InputError, UserError

_VERSION: Final = 1


@dataclass(frozen=True)
class Step:
    """A step: the numbers of its condition and of those that end the match before its first message."""

    condition: int
    at_least: int = 1
    repeats: bool = False
    directly: bool = False
    without: tuple[int, ...] = ()


@dataclass(frozen=True)
class Pattern:
    """Steps within a span; `absent` are the conditions that no message may fulfil until it is over."""

    steps: tuple[Step, ...]
    within_us: int
    absent: tuple[int, ...] = ()
    overlapping: bool = False


class PartialMatch(msgspec.Struct, array_like=True):
    """The time of the first message, and the messages of each step that has begun."""

    began_us: int
    messages: list[list[int]]


@dataclass(frozen=True)
class Match:
    """A complete match: the times at which it begins and ends, and the messages of each step."""

    began_us: int
    ended_us: int
    messages: tuple[tuple[int, ...], ...]


Fulfils = Callable[[int, PartialMatch | None], bool]
"""Whether a message fulfils a condition, as the next one of a partial match (None: as the first)."""


class _Saved(msgspec.Struct, array_like=True):
    version: int
    signature: str
    partial: dict[bytes, list[PartialMatch]]


class PatternMatches:
    """The partial matches of the keys of a bucket; `saved` gives the bytes from which the next is created.

    >>> matches = PatternMatches(Pattern((Step(0), Step(1)), within_us=10), "a then b")
    >>> for number, (time, condition) in enumerate([(0, 0), (5, 1), (6, 0), (17, 1)]):
    ...     print([m.messages for m in matches.take(b"key", time, number, lambda c, _: c == condition)])
    []
    [((0,), (1,))]
    []
    []
    """

    def __init__(self, pattern: Pattern, signature: str, saved: bytes | None = None) -> None:
        self._pattern: Final = pattern
        self._signature: Final = signature
        self._partial: dict[bytes, list[PartialMatch]] = {} if saved is None else self._read(saved)

    def take(self, key: bytes, time_us: int, number: int, fulfils: Fulfils) -> list[Match]:
        """The matches that a message completes, or the time that has passed before it."""
        made = self._ended(key, time_us)
        going: list[PartialMatch] = []
        for partial in self._partial.pop(key, []):
            stays, complete = self._next(partial, number, fulfils)
            if complete:
                made.append(_match(partial, time_us))
                if not self._pattern.overlapping:
                    return made
            elif stays:
                going.append(partial)
        if fulfils(self._pattern.steps[0].condition, None):
            first = PartialMatch(time_us, [[number]])
            if self._has_all_steps(first) and not self._pattern.absent:
                made.append(_match(first, time_us))
            else:
                going.append(first)
        if going:
            self._partial[key] = going
        return made

    def pass_time(self, until_us: int) -> list[tuple[bytes, Match]]:
        """The matches that are complete because all messages before a time have been taken."""
        return [(key, match) for key in list(self._partial) for match in self._ended(key, until_us)]

    @property
    def next_us(self) -> int | None:
        """The time after which a partial match ends by itself; None if there are none."""
        begun = [partial.began_us for partials in self._partial.values() for partial in partials]
        return min(begun) + self._pattern.within_us if begun else None

    def messages(self) -> list[int]:
        """The numbers of the messages in partial matches, in order."""
        return sorted({number for partial in self._all() for each in partial.messages for number in each})

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Give the messages other numbers."""
        for partial in self._all():
            partial.messages = [[numbers[number] for number in each] for each in partial.messages]

    def saved(self) -> bytes:
        """All of it as bytes."""
        return msgspec.msgpack.encode(_Saved(_VERSION, self._signature, self._partial))

    def _all(self) -> Iterator[PartialMatch]:
        return (partial for partials in self._partial.values() for partial in partials)

    def _ended(self, key: bytes, now_us: int) -> list[Match]:
        """End the partial matches of a key whose span is over before now; some are matches."""
        made: list[Match] = []
        partials = self._partial.pop(key, [])
        while partials and (end_us := partials[0].began_us + self._pattern.within_us) < now_us:
            partial = partials.pop(0)
            if self._pattern.absent and self._has_all_steps(partial):
                made.append(_match(partial, end_us))
                if not self._pattern.overlapping:
                    return made
        if partials:
            self._partial[key] = partials
        return made

    def _next(self, partial: PartialMatch, number: int, fulfils: Fulfils) -> tuple[bool, bool]:
        """Give a partial match its next message: whether it stays, and whether it is complete."""
        steps = self._pattern.steps
        at = len(partial.messages) - 1
        step, enough = steps[at], len(partial.messages[at]) >= steps[at].at_least
        if enough and at + 1 == len(steps):
            return not any(fulfils(condition, partial) for condition in self._pattern.absent), False
        following = steps[at + 1] if enough else None
        if following is not None and fulfils(following.condition, partial):
            partial.messages.append([number])
        elif following is not None and any(fulfils(condition, partial) for condition in following.without):
            return False, False
        elif step.repeats and fulfils(step.condition, partial):
            partial.messages[at].append(number)
        else:
            return not (step if following is None else following).directly, False
        return True, self._has_all_steps(partial) and not self._pattern.absent

    def _has_all_steps(self, partial: PartialMatch) -> bool:
        last = self._pattern.steps[-1]
        return (
            len(partial.messages) == len(self._pattern.steps) and len(partial.messages[-1]) >= last.at_least
        )

    def _read(self, saved: bytes) -> dict[bytes, list[PartialMatch]]:
        try:
            read = msgspec.msgpack.decode(saved, type=_Saved)
        except msgspec.MsgspecError as error:
            raise InputError(
                "the state of a pattern is damaged",
                expected="partial matches by key",
                got=f"{len(saved)} bytes: {error}",
                remedy="go back to a checkpoint or a savepoint, or start over with --fresh",
            ) from error
        if (read.version, read.signature) != (_VERSION, self._signature):
            raise UserError(
                "the pattern has changed",
                expected=self._signature,
                got=read.signature,
                remedy="restore the earlier pattern, or start over with --fresh",
            )
        return read.partial


def _match(partial: PartialMatch, ended_us: int) -> Match:
    return Match(partial.began_us, ended_us, tuple(map(tuple, partial.messages)))
