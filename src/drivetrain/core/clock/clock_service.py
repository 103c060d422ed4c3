"""The application's clock: the smallest of its fragments' clocks, which never moves back.

Problem: no fragment alone knows how far the application has come. Fragments report their clocks, late, twice
or not at all; they restart, fall back and replay; the service itself dies and starts again. Once it has
announced "everything before T has been processed", it must never announce less. And when the clock stands
still, it must name the fragment that it waits for, and the reason.

Design: the clock that a fragment reports already is the smallest of the clocks of its inputs and of its
state, after a committed batch; messages waiting in a channel are not below the clock that was read from it
(invariant 3 of channels). So the service keeps one number for each fragment, in a tournament (`minimum`): a
report costs the logarithm of their number. The smallest is *persisted before it is announced*, so a restarted
service cannot announce less. It is persisted at most once in `persist_ms`, but immediately at the end, and
when a waiter's time has been reached.

| event | effects |
|---|---|
| `FragmentsChanged`: kept ones keep their clock, new ones start at their upstreams' | `PersistClock` |
| `FragmentReported` by its newest attempt: its clock moves up | `PersistClock` when it is time |
| `FragmentReported` by a newer attempt: its clock is reset to the application's, then moves up | the same |
| `FragmentReported` by an older attempt | |
| `FragmentRestarted`: its clock is reset to the application's | |
| `ClockRequested`: a process waits for that time | `PersistClock` when it has been reached |
| `ClockPersisted` of a clock that was requested | `AnnounceClock` when it has moved |
| `ClockPersisted` of another, which an earlier service requested | |
| `TimePassed` | `PersistClock` when it is time; `AnnounceStalls` when others stall than before |

A fragment *stalls* when its clock has not moved up for `stall_ms`; a restart does not reset that time. It
waits for what it reported, else for its start, for its slowest upstream that stalls as well, for data of its
source, or for its own work.

Invariants, checked by `check`:

1. The announced clock never moves back, and was persisted first, at this service's request.
2. `lowest_ms` is the smallest clock of all fragments (as a full scan finds it), and never below the announced
   clock, unless a fragment restarted while that was being persisted.
3. Reports of an attempt that was replaced, and of fragments that are gone, change nothing.
4. Fragments are ordered after their upstreams.

An event that contradicts them raises and changes nothing. `now_ms` comes from a clock that does not go back.

Driven by `runtime.clock_actor`. Source: Apache Gearpump's ClockService (min clock, start clock, stalling
processors in topological order).
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from drivetrain.core.clock.minimum import Minimum
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.errors import InternalError


@dataclass(frozen=True, slots=True)
class ClockedFragment:
    """A fragment and the fragments that write what it reads."""

    id: str
    upstreams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FragmentsChanged:
    """The application consists of these fragments now, in topological order."""

    fragments: tuple[ClockedFragment, ...]


@dataclass(frozen=True, slots=True)
class FragmentReported:
    """An attempt of a fragment is at this clock (None: none yet); see the module for `waiting_for`."""

    fragment: str
    attempt: int
    clock_ms: int | None
    waiting_for: str | None = None


@dataclass(frozen=True, slots=True)
class FragmentRestarted:
    """Attempts before this one are over: the fragment continues after its last committed batch."""

    fragment: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ClockRequested:
    """A process waits until the clock has reached this time."""

    clock_ms: int


@dataclass(frozen=True, slots=True)
class ClockPersisted:
    """This clock is durable."""

    clock_ms: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed; sent periodically."""


Event: TypeAlias = (
    FragmentsChanged | FragmentReported | FragmentRestarted | ClockRequested | ClockPersisted | TimePassed
)


@dataclass(frozen=True, slots=True)
class PersistClock:
    """Write this clock where a restart finds it, then send `ClockPersisted`; repeated without that."""

    clock_ms: int


@dataclass(frozen=True, slots=True)
class AnnounceClock:
    """Announce the application's clock."""

    clock_ms: int


@dataclass(frozen=True, slots=True)
class Stall:
    """A fragment whose clock has stood for `stalled_ms`; `waiting_for` completes "waiting for ..."."""

    fragment: str
    clock_ms: int | None
    stalled_ms: int
    waiting_for: str


@dataclass(frozen=True, slots=True)
class AnnounceStalls:
    """Announce the fragments that stall now, in topological order; empty: the clock moves again."""

    stalls: tuple[Stall, ...]


Effect: TypeAlias = PersistClock | AnnounceClock | AnnounceStalls

_RETRY_MS: Final = 1_000
"""How long to wait for `ClockPersisted` before asking again, while a process waits for that clock."""

_MOST_UNDER_WAY: Final = 100
"""How many requested clocks are remembered; a confirmation of an older one changes nothing."""

START: Final = "its start"
DATA: Final = "data of its source"
WORK: Final = "its own work"


@dataclass(slots=True)
class _Fragment:
    position: int
    upstreams: tuple[str, ...]
    moved_ms: int
    attempt: int = -1
    highest_ms: int = NO_CLOCK_MS
    has_reported: bool = False
    waiting_for: str | None = None


class ClockService:
    """The clock of one application; `start_clock_ms` is the persisted one, None at the first start."""

    def __init__(self, now_ms: int, start_clock_ms: int | None, *, persist_ms: int, stall_ms: int) -> None:
        self._persisted_ms = NO_CLOCK_MS if start_clock_ms is None else start_clock_ms
        self._persist_ms: Final = persist_ms
        self._stall_ms: Final = stall_ms
        self._asked_ms = now_ms - persist_ms  # of the last request to persist: the first may be immediate
        self._urged_ms = NO_CLOCK_MS  # the clock of the last urgent request to persist
        self._under_way_ms: deque[int] = deque(
            maxlen=_MOST_UNDER_WAY
        )  # clocks above the persisted one that it asked to persist
        self._now_ms = now_ms
        self._fragments: dict[str, _Fragment] = {}
        self._clocks: Minimum | None = None
        self._wanted: list[int] = []
        self._stalling: tuple[tuple[str, str], ...] = ()

    # ---- state

    @property
    def clock_ms(self) -> int | None:
        """The application's clock as it may be announced; None when there is none yet."""
        return _known(self._persisted_ms)

    @property
    def lowest_ms(self) -> int | None:
        """The smallest clock of all fragments now, persisted or not."""
        return None if self._clocks is None else _known(self._clocks.smallest)

    @property
    def has_finished(self) -> bool:
        """Whether every fragment's clock is at its maximum, and that was announced."""
        return self._persisted_ms >= FINAL_CLOCK_MS

    def fragment_clock_ms(self, fragment: str) -> int | None:
        """The clock of a fragment; after a restart the application's, until it reports."""
        assert self._clocks is not None
        return _known(self._clocks[self._fragments[fragment].position])

    def stalls(self, now_ms: int) -> tuple[Stall, ...]:
        """The fragments that stall, in topological order."""
        if self._clocks is None:
            return ()
        found = []
        for id, fragment in self._fragments.items():
            if self._is_stalling(fragment, now_ms):
                clock_ms = _known(self._clocks[fragment.position])
                why = self._waiting_for(fragment, now_ms)
                found.append(Stall(id, clock_ms, now_ms - fragment.moved_ms, why))
        return tuple(found)

    # ---- events

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle an event; returns the effects, in order."""
        if now_ms < self._now_ms:
            raise InternalError(f"time went back from {self._now_ms} to {now_ms} ms", where="clock service")
        effects: list[Effect] = []
        match event:
            case FragmentReported():
                self._report(event, now_ms)
            case FragmentsChanged(fragments):
                self._change(fragments, now_ms)
            case FragmentRestarted(id, attempt):
                fragment = self._fragments.get(id)
                if fragment is not None and attempt > fragment.attempt:
                    self._reset(fragment, attempt)
            case ClockRequested(clock_ms):
                if clock_ms > self._persisted_ms:
                    heapq.heappush(self._wanted, clock_ms)
            case ClockPersisted(clock_ms):
                effects = self._persisted(clock_ms)
            case TimePassed():
                effects = self._pass_time(now_ms)
        self._now_ms = now_ms
        self._persist(now_ms, effects)
        return effects

    def _change(self, fragments: tuple[ClockedFragment, ...], now_ms: int) -> None:
        known: set[str] = set()
        for given in fragments:
            missing = [up for up in given.upstreams if up not in known]
            if missing or given.id in known:
                raise InternalError(f"{given.id} does not stand behind {missing}", where="clock service")
            known.add(given.id)
        clocks: dict[str, int] = {}
        after: dict[str, _Fragment] = {}
        for position, (id, upstreams) in enumerate((f.id, f.upstreams) for f in fragments):
            before = self._fragments.get(id)
            if before is None:
                clocks[id] = min((clocks[up] for up in upstreams), default=self._persisted_ms)
                after[id] = _Fragment(position, upstreams, now_ms, highest_ms=clocks[id])
            else:
                assert self._clocks is not None
                clocks[id] = self._clocks[before.position]
                before.position, before.upstreams = position, upstreams
                after[id] = before
        self._fragments = after
        self._clocks = Minimum(clocks.values()) if clocks else None

    def _report(self, event: FragmentReported, now_ms: int) -> None:
        fragment = self._fragments.get(event.fragment)
        if fragment is None or event.attempt < fragment.attempt:
            return
        if event.attempt > fragment.attempt:
            self._reset(fragment, event.attempt)
        fragment.has_reported = True
        fragment.waiting_for = event.waiting_for
        clocks = self._clocks
        assert clocks is not None
        if event.clock_ms is None or event.clock_ms <= clocks[fragment.position]:
            return  # an older report of the same attempt that arrived late
        clocks.put(fragment.position, event.clock_ms)
        if event.clock_ms > fragment.highest_ms:
            fragment.highest_ms, fragment.moved_ms = event.clock_ms, now_ms

    def _reset(self, fragment: _Fragment, attempt: int) -> None:
        assert self._clocks is not None
        is_first = fragment.attempt < 0
        fragment.attempt, fragment.has_reported, fragment.waiting_for = attempt, False, None
        if not is_first:
            self._clocks.put(fragment.position, self._persisted_ms)

    def _persisted(self, clock_ms: int) -> list[Effect]:
        if clock_ms <= self._persisted_ms or clock_ms not in self._under_way_ms:
            return []
        self._persisted_ms = clock_ms
        while self._under_way_ms and self._under_way_ms[0] <= clock_ms:
            self._under_way_ms.popleft()
        while self._wanted and self._wanted[0] <= clock_ms:
            heapq.heappop(self._wanted)
        return [AnnounceClock(clock_ms)]

    def _persist(self, now_ms: int, effects: list[Effect]) -> None:
        if self._clocks is None or self._clocks.smallest <= self._persisted_ms:
            return
        lowest_ms = self._clocks.smallest
        is_urgent = lowest_ms >= FINAL_CLOCK_MS or bool(self._wanted and self._wanted[0] <= lowest_ms)
        # An urgent clock may have been requested already; the request is under way, or was lost.
        patience_ms = min(self._persist_ms, _RETRY_MS) if is_urgent else self._persist_ms
        if now_ms - self._asked_ms >= patience_ms or (is_urgent and self._urged_ms != lowest_ms):
            self._urged_ms = lowest_ms if is_urgent else NO_CLOCK_MS
            self._asked_ms = now_ms
            self._under_way_ms.append(lowest_ms)
            effects.append(PersistClock(lowest_ms))

    # ---- stalls

    def _pass_time(self, now_ms: int) -> list[Effect]:
        stalls = self.stalls(now_ms)
        stalling = tuple((stall.fragment, stall.waiting_for) for stall in stalls)
        if stalling == self._stalling:
            return []
        self._stalling = stalling
        return [AnnounceStalls(stalls)]

    def _is_stalling(self, fragment: _Fragment, now_ms: int) -> bool:
        return fragment.highest_ms < FINAL_CLOCK_MS and now_ms - fragment.moved_ms >= self._stall_ms

    def _waiting_for(self, fragment: _Fragment, now_ms: int) -> str:
        if fragment.waiting_for is not None:
            return fragment.waiting_for
        if not fragment.has_reported:
            return START
        if not fragment.upstreams:
            return DATA
        stalling = [up for up in fragment.upstreams if self._is_stalling(self._fragments[up], now_ms)]
        if not stalling:
            return WORK
        clocks = self._clocks
        assert clocks is not None
        slowest = min(stalling, key=lambda up: clocks[self._fragments[up].position])
        return f"fragment {slowest}"

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        seen: set[str] = set()
        for position, (id, fragment) in enumerate(self._fragments.items()):
            if fragment.position != position or any(up not in seen for up in fragment.upstreams):
                raise InternalError(f"invariant 4: {id} stands at {fragment.position}", where="clock service")
            seen.add(id)
        if self._clocks is None:
            return
        self._clocks.check()
        scanned = min(self._clocks[f.position] for f in self._fragments.values())
        if scanned != self._clocks.smallest:
            raise InternalError(
                f"invariant 2: the smallest clock is {scanned}, not {self._clocks.smallest}",
                where="clock service",
            )
        if any(wanted <= self._persisted_ms for wanted in self._wanted):
            raise InternalError(
                "invariant 1: a waiter remains for a time that was announced", where="clock service"
            )


def _known(clock_ms: int) -> int | None:
    return None if clock_ms <= NO_CLOCK_MS else clock_ms
