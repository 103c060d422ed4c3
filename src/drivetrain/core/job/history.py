"""The figures of an application over the last quarter of an hour, from which trends and curves are computed.

Problem: the current figures of an application do not show what grows. A console or command that shows them
may have started a moment ago, and needs the figures from before. They must cost little memory, however many
fragments there are.

Design: every `STEP_MS` the application master records one `Moment`, with the changing figures of every
fragment. Moments older than `SPAN_MS` are deleted. With very many fragments, moments are recorded less often,
so that all of them together have at most `MOST_FIGURES` entries. The history is kept in memory, so a new
application master starts with an empty one.

Invariants, checked by `check()`:

1. The times of moments grow, and the oldest is at most `SPAN_MS` before the newest.
2. All moments together have at most `MOST_FIGURES` entries of fragments, or there is one moment.

Called by `cluster.app_master.stream.stream_app_master`; read by
`core.diagnosis.situation`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from drivetrain.core.job.fragment_figures import Phases
from drivetrain.errors import InternalError

STEP_MS: Final = 10_000
SPAN_MS: Final = 15 * 60_000
MOST_FIGURES: Final = 20_000


class FragmentMoment(msgspec.Struct, frozen=True, array_like=True):
    """A fragment at one moment; counters are those of `FragmentView` and its figures.

    `blocked_ms` is the sum over its channels. `batch_ms` is of its last batch.
    """

    attempt: int = 0
    batches: int = 0
    rows_total: int = 0
    batch_ms: int = 0
    lag_rows: int | None = None
    clock_ms: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    latency_p50_ms: int | None = None
    latency_p99_ms: int | None = None
    blocked_ms: int = 0
    phases: Phases = Phases()
    clock_delay_ms: int | None = None


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """An application at `at_ms` (wall clock, ms since 1970); `late` and `dead_lettered` are counters."""

    at_ms: int
    clock_ms: int | None = None
    late: int = 0
    dead_lettered: int = 0
    disk_free: int | None = None
    fragments: dict[str, FragmentMoment] = {}


class History(msgspec.Struct, frozen=True, array_like=True):
    """The recorded moments, oldest first.

    >>> History().moments
    ()
    """

    moments: tuple[Moment, ...] = ()

    def of(self, fragment: str) -> list[tuple[int, FragmentMoment]]:
        """The moments of one fragment with their times, oldest first."""
        return [(m.at_ms, m.fragments[fragment]) for m in self.moments if fragment in m.fragments]


NO_HISTORY: Final = History()


def merged(moments: Sequence[Moment]) -> Moment:
    """One moment for several that follow each other: counters and states of the last, the largest delays.

    Its `disk_free` is the smallest. Raises InternalError without any moment.

    >>> merged([Moment(1, late=2, disk_free=5), Moment(2, late=3, disk_free=7)])
    Moment(at_ms=2, clock_ms=None, late=3, dead_lettered=0, disk_free=5, fragments={})
    """
    if not moments:
        raise InternalError("no moments to merge")
    last = moments[-1]
    names = dict.fromkeys(name for moment in moments for name in moment.fragments)
    of_each = {name: [m.fragments[name] for m in moments if name in m.fragments] for name in names}
    return msgspec.structs.replace(
        last,
        clock_ms=next((m.clock_ms for m in reversed(moments) if m.clock_ms is not None), None),
        disk_free=min((m.disk_free for m in moments if m.disk_free is not None), default=None),
        fragments={name: _merged_fragment(found) for name, found in of_each.items()},
    )


def _merged_fragment(found: Sequence[FragmentMoment]) -> FragmentMoment:
    def largest(values: Iterable[int | None]) -> int | None:
        return max((value for value in values if value is not None), default=None)

    return msgspec.structs.replace(
        found[-1],
        batch_ms=max(each.batch_ms for each in found),
        lag_rows=largest(each.lag_rows for each in found),
        latency_p50_ms=largest(each.latency_p50_ms for each in found),
        latency_p99_ms=largest(each.latency_p99_ms for each in found),
        clock_delay_ms=largest(each.clock_delay_ms for each in found),
    )


class HistoryKeeper:
    """Keeps the history of one application; times are of the wall clock, which may be set back."""

    def __init__(self) -> None:
        self._moments: Final[deque[Moment]] = deque()
        self._step_ms = STEP_MS

    def is_due(self, now_ms: int) -> bool:
        """Whether another moment is due."""
        return not self._moments or not 0 <= now_ms - self._moments[-1].at_ms < self._step_ms

    def note(self, moment: Moment) -> None:
        """Record a moment, if one is due; if the clock was set back, drop the moments that are later than
        now."""
        if not self.is_due(moment.at_ms):
            return
        while self._moments and self._moments[-1].at_ms >= moment.at_ms:
            self._moments.pop()
        self._moments.append(moment)
        each = max(1, len(moment.fragments))
        self._step_ms = max(STEP_MS, SPAN_MS * each // MOST_FIGURES)
        while len(self._moments) > 1 and self._is_too_much(moment.at_ms):
            self._moments.popleft()

    def history(self) -> History:
        """The recorded moments."""
        return History(tuple(self._moments))

    def _is_too_much(self, now_ms: int) -> bool:
        return self._moments[0].at_ms < now_ms - SPAN_MS or self._entries() > MOST_FIGURES

    def _entries(self) -> int:
        return sum(len(moment.fragments) for moment in self._moments)

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        times = [moment.at_ms for moment in self._moments]
        if any(later <= earlier for earlier, later in pairwise(times)):
            raise InternalError(f"history invariant 1: the times {times} do not grow")
        if times and times[-1] - times[0] > SPAN_MS:
            raise InternalError(f"history invariant 1: from {times[0]} to {times[-1]}")
        if len(times) > 1 and self._entries() > MOST_FIGURES:
            raise InternalError(f"history invariant 2: {self._entries()} entries")


def late_and_dead(counts: Mapping[str, tuple[int, int, int, int]]) -> tuple[int, int]:
    """The late and the dead-lettered messages of all processors: `counts` as in a status."""
    return sum(late for _, _, late, _ in counts.values()), sum(dead for *_, dead in counts.values())
