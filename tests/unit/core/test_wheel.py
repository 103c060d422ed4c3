"""The timing wheel: each of its rules, and agreement with a sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drivetrain.core.waiting.wheel import TimerTask, TimingWheel
from drivetrain.errors import ConfigError, InternalError
from nightly_run import examples


def turn_all(wheel: TimingWheel, now_ms: int) -> list[TimerTask]:
    due: list[TimerTask] = []
    while wheel.turn(now_ms, due):
        wheel.check()
    return due


def test_the_time_starts_rounded_down_to_the_tick() -> None:
    assert TimingWheel(tick_ms=5, start_ms=23).current_ms == 20


def test_a_cancelled_task_is_refused_even_if_it_lies_ahead() -> None:
    wheel, task = TimingWheel(), TimerTask()
    task.cancel()
    assert not wheel.add(task, 10)
    assert task.cancelled
    assert wheel.size == 0


@pytest.mark.parametrize(("expiration_ms", "held"), [(19, False), (24, False), (25, True)])
def test_a_task_that_expires_before_the_next_tick_is_refused(expiration_ms: int, held: bool) -> None:
    wheel, task = TimingWheel(tick_ms=5, start_ms=20), TimerTask()
    assert wheel.add(task, expiration_ms) is held
    assert task.pending is held
    assert wheel.size == int(held)


def test_a_bucket_expires_at_its_tasks_expiration_rounded_down_to_the_tick() -> None:
    wheel = TimingWheel(tick_ms=5)
    wheel.add(TimerTask(), 19)
    assert wheel.next_expiration_ms == 15


def test_levels_appear_on_first_use_and_span_twenty_times_as_much_each() -> None:
    wheel = TimingWheel()
    wheel.add(TimerTask(), 19)
    assert wheel.spans_ms == [20]
    wheel.add(TimerTask(), 20)
    assert wheel.spans_ms == [20, 400]
    wheel.add(TimerTask(), 399)
    assert wheel.spans_ms == [20, 400]
    wheel.add(TimerTask(), 63_999_999)
    assert wheel.spans_ms == [20, 400, 8_000, 160_000, 3_200_000, 64_000_000]


def test_a_new_level_starts_at_the_present_time_of_the_one_below() -> None:
    wheel = TimingWheel()
    wheel.advance(1_234)
    wheel.add(TimerTask(), 1_234 + 20)
    assert wheel.next_expiration_ms == 1_240, "the bucket [1240, 1260) of the second level"
    wheel.add(TimerTask(), 1_220 + 400 - 1)
    assert len(wheel.spans_ms) == 2, "the second level stands at 1220 and reaches to 1620"
    wheel.add(TimerTask(), 1_220 + 400)
    assert len(wheel.spans_ms) == 3
    wheel.check()


def test_a_bucket_is_queued_once_while_its_expiration_stays() -> None:
    wheel = TimingWheel()
    for _ in range(3):
        wheel.add(TimerTask(), 7)
    due: list[TimerTask] = []
    assert wheel.turn(7, due)
    assert len(due) == 3
    assert not wheel.turn(10**9, due), "it was queued once"


def test_a_flushed_bucket_is_queued_anew() -> None:
    wheel = TimingWheel()
    wheel.add(TimerTask(), 7)
    turn_all(wheel, 7)
    wheel.add(TimerTask(), 27 - 1)
    wheel.add(TimerTask(), 26)
    assert wheel.next_expiration_ms == 26
    assert len(turn_all(wheel, 26)) == 2


def test_an_emptied_bucket_stays_queued_and_still_moves_the_clock() -> None:
    wheel, task = TimingWheel(), TimerTask()
    wheel.add(task, 7)
    assert task.cancel()
    assert wheel.size == 0
    assert wheel.next_expiration_ms == 7
    due: list[TimerTask] = []
    assert wheel.turn(100, due)
    assert due == []
    assert wheel.current_ms == 7, "to the bucket's expiration, not to now"


def test_advancing_acts_only_from_the_next_tick_on_and_rounds_down() -> None:
    wheel = TimingWheel(tick_ms=5)
    wheel.advance(4)
    assert wheel.current_ms == 0
    wheel.advance(13)
    assert wheel.current_ms == 10
    wheel.advance(2)
    assert wheel.current_ms == 10, "never back"


def test_advancing_moves_the_upper_levels_too() -> None:
    wheel = TimingWheel()
    wheel.add(TimerTask(), 399)
    turn_all(wheel, 399)
    wheel.advance(400)
    wheel.add(TimerTask(), 799)
    assert wheel.spans_ms == [20, 400], "the second level has moved to 400 and reaches to 800"


def test_advancing_past_a_queued_bucket_raises_and_changes_nothing() -> None:
    wheel = TimingWheel()
    wheel.add(TimerTask(), 7)
    with pytest.raises(InternalError, match="cannot go to 8 ms"):
        wheel.advance(8)
    assert wheel.current_ms == 0
    assert len(turn_all(wheel, 7)) == 1


def test_tasks_cascade_down_the_levels_without_changing_the_size() -> None:
    wheel, task = TimingWheel(), TimerTask()
    wheel.add(task, 8_123)
    due: list[TimerTask] = []
    stops = []
    while wheel.next_expiration_ms is not None:
        assert wheel.size == 1
        stops.append(wheel.next_expiration_ms)
        wheel.turn(10**6, due)
        wheel.check()
    assert stops == [8_000, 8_120, 8_123]
    assert due == [task]
    assert wheel.size == 0
    assert not task.pending


def test_cancelling_counts_down_once_and_a_task_that_is_due_is_only_marked() -> None:
    wheel, task = TimingWheel(), TimerTask()
    wheel.add(task, 5)
    wheel.add(TimerTask(), 5)
    assert task.cancel()
    assert not task.cancel()
    assert wheel.size == 1
    (due,) = turn_all(wheel, 5)
    assert not due.cancelled
    assert not due.cancel(), "it was no longer pending"
    assert due.cancelled
    assert wheel.size == 0


def test_adding_a_pending_task_removes_its_old_entry_even_if_the_new_one_is_refused() -> None:
    wheel, task = TimingWheel(), TimerTask()
    wheel.add(task, 5)
    wheel.add(task, 9)
    assert wheel.size == 1
    assert turn_all(wheel, 8) == []
    assert not wheel.add(task, 0)
    assert wheel.size == 0
    assert turn_all(wheel, 100) == []


def test_tasks_of_one_bucket_come_in_the_order_they_were_added() -> None:
    wheel = TimingWheel(tick_ms=10)
    tasks = [TimerTask() for _ in range(5)]
    for number, task in enumerate(tasks):
        wheel.add(task, 19 - number)
    assert turn_all(wheel, 10) == tasks


@pytest.mark.parametrize("bad", [{"tick_ms": 0}, {"wheel_size": 1}, {"start_ms": -1}])
def test_a_wheel_that_cannot_turn_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        TimingWheel(**bad)


def test_check_finds_a_wrong_size() -> None:
    wheel = TimingWheel()
    wheel.add(TimerTask(), 5)
    wheel._size = 7
    with pytest.raises(InternalError, match="invariant 1"):
        wheel.check()


class WheelAgainstSortedList(RuleBasedStateMachine):
    """The model: a list of (expiration, task), searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[TimerTask] = []

    @initialize(tick_ms=st.integers(1, 7), wheel_size=st.integers(2, 21), start_ms=st.integers(0, 10_000))
    def start(self, tick_ms: int, wheel_size: int, start_ms: int) -> None:
        self.tick_ms = tick_ms
        self.wheel = TimingWheel(tick_ms, wheel_size, start_ms)
        self.now_ms = start_ms
        self.held: list[tuple[int, TimerTask]] = []

    def rounded(self, time_ms: int) -> int:
        return time_ms - time_ms % self.tick_ms

    def forget(self, task: TimerTask) -> bool:
        before = len(self.held)
        self.held = [(expiration, other) for expiration, other in self.held if other is not task]
        return len(self.held) < before

    @rule(ahead_ms=st.integers(-5, 60) | st.integers(0, 3_000) | st.integers(0, 10**7))
    def add(self, ahead_ms: int) -> None:
        task = TimerTask()
        self.tasks.append(task)
        self.place(task, self.now_ms + ahead_ms)

    def place(self, task: TimerTask, expiration_ms: int) -> None:
        expected = expiration_ms >= self.wheel.current_ms + self.tick_ms
        self.forget(task)
        assert self.wheel.add(task, expiration_ms) is expected
        if expected:
            self.held.append((expiration_ms, task))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), ahead_ms=st.integers(0, 3_000))
    def add_again(self, data: st.DataObject, ahead_ms: int) -> None:
        task = data.draw(st.sampled_from(self.tasks))
        if not task.cancelled:
            self.place(task, self.now_ms + ahead_ms)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.tasks))
        assert task.cancel() is self.forget(task)

    @rule(by_ms=st.integers(0, 50) | st.integers(0, 10_000) | st.integers(0, 10**7))
    def go_on(self, by_ms: int) -> None:
        self.now_ms += by_ms
        due: list[TimerTask] = []
        while self.wheel.turn(self.now_ms, due):
            self.wheel.check()
        expected = [(e, task) for e, task in self.held if self.rounded(e) <= self.now_ms]
        self.held = [(e, task) for e, task in self.held if self.rounded(e) > self.now_ms]
        assert {id(task) for task in due} == {id(task) for _, task in expected}
        assert len(due) == len(expected)
        ticks = [self.rounded(task.expiration_ms) for task in due]
        assert ticks == sorted(ticks)

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "wheel"):
            self.wheel.check()
            assert self.wheel.size == len(self.held)
            assert {id(t) for t in self.tasks if t.pending} == {id(t) for _, t in self.held}


TestWheelAgainstSortedList = WheelAgainstSortedList.TestCase
TestWheelAgainstSortedList.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)


@given(delays=st.lists(st.integers(0, 10**6), max_size=60), tick_ms=st.integers(1, 10))
def test_each_task_becomes_due_within_one_tick_of_its_expiration(delays: list[int], tick_ms: int) -> None:
    wheel = TimingWheel(tick_ms)
    for delay in delays:
        wheel.add(TimerTask(), delay)
    while (now_ms := wheel.next_expiration_ms) is not None:
        due: list[TimerTask] = []
        wheel.turn(now_ms, due)
        for task in due:
            assert 0 <= task.expiration_ms - now_ms < tick_ms
    assert wheel.size == 0
