"""The application's clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.clock.clock_service import (
    DATA,
    START,
    WORK,
    AnnounceClock,
    AnnounceStalls,
    ClockedFragment,
    ClockPersisted,
    ClockRequested,
    ClockService,
    Effect,
    FragmentReported,
    FragmentRestarted,
    FragmentsChanged,
    PersistClock,
    Stall,
    TimePassed,
)
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.errors import InternalError

LINE = FragmentsChanged((ClockedFragment("a"), ClockedFragment("b", ("a",)), ClockedFragment("c", ("b",))))


def service(start_clock_ms: int | None = None, fragments: FragmentsChanged = LINE) -> ClockService:
    made = ClockService(0, start_clock_ms, persist_ms=1_000, stall_ms=60_000)
    made.step(fragments, 0)
    return made


def report(
    made: ClockService, fragment: str, clock_ms: int | None, now_ms: int, attempt: int = 0
) -> list[Effect]:
    return made.step(FragmentReported(fragment, attempt, clock_ms), now_ms)


def all_at(made: ClockService, clock_ms: int, now_ms: int) -> list[Effect]:
    return [effect for id in "abc" for effect in report(made, id, clock_ms, now_ms)]


def test_it_is_the_smallest_of_all_and_told_once_it_is_persisted() -> None:
    made = service()
    assert report(made, "a", 30, 1) == []
    assert report(made, "b", 20, 2) == []
    assert report(made, "c", 10, 3) == [PersistClock(10)]
    assert made.clock_ms is None
    assert made.step(ClockPersisted(10), 4) == [AnnounceClock(10)]
    assert made.clock_ms == 10


@pytest.mark.parametrize("clock_ms", [9, 11, FINAL_CLOCK_MS])
def test_a_persisted_clock_that_it_did_not_ask_for_is_not_told(clock_ms: int) -> None:
    """A service that failed asked for it; that one knew of clocks that this one has not heard."""
    made = service()
    assert made.step(ClockPersisted(clock_ms), 0) == []
    assert all_at(made, 10, 1)[-1] == PersistClock(10)
    assert made.step(ClockPersisted(clock_ms), 2) == []
    assert made.clock_ms is None
    assert made.step(ClockPersisted(10), 3) == [AnnounceClock(10)]
    made.check()


def test_it_is_persisted_now_and_then_and_asked_for_again_if_that_is_lost() -> None:
    made = service()
    assert all_at(made, 10, 0) == [PersistClock(10)]
    assert all_at(made, 20, 999) == []
    assert made.step(TimePassed(), 1_000) == [PersistClock(20)]
    assert made.step(TimePassed(), 1_500) == []
    assert made.step(TimePassed(), 2_000) == [PersistClock(20)]


def test_who_waits_for_what_has_been_reached_does_not_wait_for_the_interval() -> None:
    made = service()
    all_at(made, 10, 0)
    made.step(ClockPersisted(10), 0)
    assert made.step(ClockRequested(20), 1) == []
    assert all_at(made, 19, 2) == []
    assert all_at(made, 25, 3) == [PersistClock(25)]
    assert made.step(TimePassed(), 4) == [], "it is under way"
    assert made.step(ClockPersisted(25), 5) == [AnnounceClock(25)]
    assert all_at(made, 30, 6) == []


def test_it_finishes_when_every_clock_is_at_its_maximum() -> None:
    made = service()
    all_at(made, 10, 0)
    assert all_at(made, FINAL_CLOCK_MS, 1) == [PersistClock(FINAL_CLOCK_MS)]
    assert not made.has_finished
    made.step(ClockPersisted(FINAL_CLOCK_MS), 2)
    assert made.has_finished


def test_a_restart_resets_the_fragment_and_not_the_application() -> None:
    made = service()
    all_at(made, 50, 0)
    made.step(ClockPersisted(50), 0)
    all_at(made, 90, 1)
    made.step(FragmentRestarted("b", 1), 2)
    assert made.fragment_clock_ms("b") == 50
    assert made.lowest_ms == 50
    assert report(made, "b", 90, 3, attempt=0) == [], "an attempt that is over says nothing"
    assert made.lowest_ms == 50
    assert report(made, "b", 40, 2_000, attempt=1) == []
    assert made.clock_ms == 50
    assert report(made, "b", 70, 2_001, attempt=1) == [PersistClock(70)]


def test_a_report_of_a_newer_attempt_is_a_restart() -> None:
    made = service()
    all_at(made, 50, 0)
    report(made, "b", 30, 1, attempt=1)
    assert made.fragment_clock_ms("b") == 30


def test_an_older_report_of_the_same_attempt_changes_nothing() -> None:
    made = service()
    all_at(made, 50, 0)
    report(made, "a", 40, 1)
    assert made.fragment_clock_ms("a") == 50


def test_a_new_fragment_starts_at_its_upstream_and_a_new_source_at_the_application() -> None:
    made = service()
    all_at(made, 50, 0)
    made.step(ClockPersisted(50), 0)
    report(made, "a", 80, 1)
    made.step(FragmentsChanged((ClockedFragment("a"), ClockedFragment("x"), ClockedFragment("d", ("a",)))), 2)
    assert made.fragment_clock_ms("d") == 80
    assert made.fragment_clock_ms("x") == 50
    assert report(made, "c", 10, 3) == [], "it is gone"
    made.check()


def test_it_begins_at_what_was_persisted() -> None:
    made = service(70)
    assert made.clock_ms == 70
    assert all_at(made, 60, 0) == []
    assert made.clock_ms == 70
    assert all_at(made, 75, 1) == [PersistClock(75)]


def test_fragments_out_of_order_are_refused_and_nothing_changes() -> None:
    made = service()
    with pytest.raises(InternalError, match="does not stand behind"):
        made.step(FragmentsChanged((ClockedFragment("b", ("a",)), ClockedFragment("a"))), 1)
    assert all_at(made, 10, 1) == [PersistClock(10)]


def test_time_that_goes_back_is_refused() -> None:
    made = service()
    made.step(TimePassed(), 10)
    with pytest.raises(InternalError, match="time went back"):
        made.step(TimePassed(), 9)


def test_stalling_fragments_are_named_in_order_with_whom_they_wait_for() -> None:
    made = service()
    all_at(made, 50, 1_000)
    assert made.step(TimePassed(), 60_999) == [PersistClock(50)]
    effects = made.step(TimePassed(), 61_000)
    expected = (
        Stall("a", 50, 60_000, DATA),
        Stall("b", 50, 60_000, "fragment a"),
        Stall("c", 50, 60_000, "fragment b"),
    )
    assert AnnounceStalls(expected) in effects
    assert made.stalls(61_000) == expected
    report(made, "a", 51, 61_500)
    assert [(s.fragment, s.waiting_for) for s in made.stalls(61_500)] == [("b", WORK), ("c", "fragment b")]
    for id in "bc":
        report(made, id, 51, 61_600)
    assert AnnounceStalls(()) in made.step(TimePassed(), 61_700)


def test_a_restart_and_what_was_reported_are_named_as_the_reason() -> None:
    made = service()
    all_at(made, 50, 0)
    made.step(FragmentReported("a", 0, 50, "room in channel a-b"), 1)
    made.step(FragmentRestarted("b", 1), 2)
    made.step(FragmentReported("b", 1, None), 3)
    made.step(FragmentRestarted("c", 1), 4)
    assert [(s.fragment, s.waiting_for) for s in made.stalls(60_000)] == [
        ("a", "room in channel a-b"),
        ("b", "fragment a"),
        ("c", START),
    ]


def test_a_finished_fragment_does_not_stall() -> None:
    made = service()
    all_at(made, 50, 0)
    report(made, "a", FINAL_CLOCK_MS, 1)
    assert [s.fragment for s in made.stalls(60_001)] == ["b", "c"]


class Model:
    """The same by a full scan, without anything clever."""

    def __init__(self) -> None:
        self.clock: dict[str, int] = dict.fromkeys("abc", NO_CLOCK_MS)
        self.attempt = dict.fromkeys("abc", -1)
        self.told = NO_CLOCK_MS

    def report(self, id: str, attempt: int, clock: int) -> None:
        if attempt < self.attempt[id]:
            return
        if attempt > self.attempt[id] >= 0:
            self.clock[id] = self.told
        self.attempt[id] = attempt
        self.clock[id] = max(self.clock[id], clock)


def known(clock_ms: int | None) -> int:
    """A clock as the model has it: 0 is a time like any other."""
    return NO_CLOCK_MS if clock_ms is None else clock_ms


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 50), st.booleans()), max_size=60
    )
)
def test_it_agrees_with_a_full_scan(events: list[tuple[str, int, int, bool]]) -> None:
    made, model, asked = service(), Model(), None
    for now_ms, (id, attempt, clock, is_persisted) in enumerate(events):
        effects = made.step(FragmentReported(id, attempt, clock), now_ms * 400)
        model.report(id, attempt, clock)
        assert known(made.lowest_ms) == min(model.clock.values())
        asked = next((e.clock_ms for e in effects if isinstance(e, PersistClock)), asked)
        if is_persisted and asked is not None:
            made.step(ClockPersisted(asked), now_ms * 400)
            model.told = max(model.told, asked)
        assert known(made.clock_ms) == model.told
        made.check()
