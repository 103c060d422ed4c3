"""What a randomly changed application has to show: each version made what it makes, of its own messages.

A message goes through the versions that were in force in the order in which messages came. Between two of
them that handed over at an event time, the message's time decides, and nothing else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from random_changes import BRANCHES, WINDOWS, Drawn
from shop import rows
from timed import HOUR_MS, time_of_ms

Part = Callable[[Drawn], int]
DISORDER_MS = 3 * HOUR_MS


@dataclass(frozen=True)
class InForce:
    """A version that came into force, at an event time or with the next batch.

    `before` gets the messages before that time. One that `returns`, because the one after it was rolled back,
    may get messages that others have got between.
    """

    drawn: Drawn
    at_ms: int | None = None
    before: Drawn | None = None
    returns: bool = False

    def takes(self, of: Part, ms: int) -> int:
        """The code that a message of a time goes through while this version is in force."""
        return of(self.drawn if self.before is None or self.has_begun(ms) else self.before)

    def has_begun(self, ms: int) -> bool:
        """Whether messages of a time are for this version, and not for the one before it."""
        return self.at_ms is None or ms >= self.at_ms

    def divides(self, of: Part) -> bool:
        """Whether no message of its time or later may have gone through the version before it."""
        return self.at_ms is not None and not self.returns and of(self.drawn) != of(self.before or self.drawn)


def check_spans(taken: Iterable[tuple[int, int]], versions: list[InForce], of: Part, what: str) -> None:
    """Messages, as pairs of their time and the code that they went through, in the order of their arrival.

    Raises AssertionError unless some order of the versions explains them.
    """
    at = 0
    for ms, code in taken:
        over = [i for i, one in enumerate(versions) if one.divides(of) and one.has_begun(ms)]
        at = max([at, *over])
        while at < len(versions) and versions[at].takes(of, ms) != code:
            at += 1
        assert at < len(versions), f"{what}: a message of {ms} went through {code}, in {versions}"


@dataclass
class Model:
    """What has to be shown in `place`, when `sent` were fed and `versions` in force, each in their order."""

    place: Path
    versions: list[InForce]
    sent: list[int]

    def is_complete(self) -> bool:
        """Whether everything is shown, as it has to be; raises AssertionError for what must never be."""
        read = self._marks("marked", lambda drawn: drawn.read)
        hop = self._marks("hopped", lambda drawn: drawn.hop)
        if len(read) < len(self.sent) or len(hop) < len(self.sent):
            return False
        assert set(read) == set(hop) == set(self.sent)
        by_code = {one.drawn.read: one.drawn for one in self.versions}
        for which in range(BRANCHES):
            wanted = Counter(n * 100 + code for n, code in read.items() if _shows(by_code[code], which, n))
            found = Counter(row["mark"] for row in rows(self.place / f"branch{which}"))
            if found != wanted:
                assert not found - wanted, f"branch {which} shows {found - wanted}"
                return False
        has = {n: by_code[code].windows for n, code in read.items()}
        return all(self._has_windows(which, has) for which in range(WINDOWS))

    def _marks(self, name: str, of: Part) -> dict[int, int]:
        """The code that each message went through, of a sink that shows all; each is shown once."""
        found = [row["mark"] for row in rows(self.place / name)]
        taken = {mark // 100: mark % 100 for mark in found}
        assert len(taken) == len(found), f"a message is shown twice in {name}"
        assert taken.keys() <= set(self.sent), f"{name} shows what nobody sent"
        check_spans(((time_of_ms(n), taken[n]) for n in self.sent if n in taken), self.versions, of, name)
        return taken

    def _has_windows(self, which: int, has: dict[int, tuple[int, ...]]) -> bool:
        size_ms, wanted = HOUR_MS * (which + 1), Counter[tuple[int, ...]]()
        clock_ms = max(map(time_of_ms, self.sent)) - DISORDER_MS
        for first, end in self._spans(lambda n: which in has[n]):
            newest_ms = max(map(time_of_ms, self.sent[:first]), default=-1)
            of_window = defaultdict[int, list[int]](list)
            for n in self.sent[first:end]:
                of_window[time_of_ms(n) // size_ms * size_ms].append(n)
            for start_ms, members in of_window.items():
                has_ended = end < len(self.sent) or start_ms + size_ms <= clock_ms
                if start_ms > newest_ms and has_ended:  # others are not whole, or have not ended
                    wanted[tuple(sorted(members))] += 1
        shown: list[dict[str, Any]] = list(rows(self.place / f"windows{which}"))
        found = Counter(tuple(sorted(mark // 100 for mark in row["marks"])) for row in shown)
        assert all(row["n"] == len(row["marks"]) for row in shown), "a message counts twice"
        assert not found - wanted, f"window {which} shows {found - wanted} beside {wanted - found}"
        self._check_codes(which, size_ms, shown)
        return found == wanted

    def _check_codes(self, which: int, size_ms: int, shown: list[dict[str, Any]]) -> None:
        """The versions of the trunk before a window, and of what follows it."""
        trunks = {mark // 100: mark % 100 for row in shown for mark in row["marks"]}
        taken = [(time_of_ms(n), trunks[n]) for n in self.sent if n in trunks]
        check_spans(taken, self.versions, lambda drawn: drawn.trunk, f"trunk {which}")
        results = sorted((row["start"] + size_ms - 1, row["code"]) for row in shown)
        check_spans(results, self.versions, lambda drawn: drawn.after, f"after window {which}")

    def _spans(self, is_there: Callable[[int], bool]) -> list[tuple[int, int]]:
        """The places in what was sent, from and to, of each time that something was there."""
        spans: list[tuple[int, int]] = []
        first: int | None = None
        for place, n in enumerate(self.sent):
            if is_there(n) and first is None:
                first = place
            elif not is_there(n) and first is not None:
                spans.append((first, place))
                first = None
        return spans if first is None else [*spans, (first, len(self.sent))]


def _shows(drawn: Drawn, which: int, n: int) -> bool:
    return any(one == which and n % by == rest for one, by, rest in drawn.branches)
