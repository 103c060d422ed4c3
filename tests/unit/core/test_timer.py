"""The timer: delays, tasks due at once, and jumps of the clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.waiting.timer import Timer
from drivetrain.core.waiting.wheel import TimerTask


def test_a_task_is_due_when_its_delay_has_passed() -> None:
    timer, task = Timer[TimerTask](start_ms=1_000), TimerTask()
    assert timer.add(task, 200, now_ms=1_000)
    assert timer.advance(1_199) == []
    assert timer.advance(1_200) == [task]
    assert timer.advance(5_000) == []


def test_a_delay_counts_from_now_not_from_the_wheels_time() -> None:
    timer, task = Timer[TimerTask](), TimerTask()
    timer.add(task, 10, now_ms=5_000)
    assert task.expiration_ms == 5_010
    assert timer.advance(5_009) == []
    assert timer.advance(5_010) == [task]


def test_a_task_without_delay_is_due_at_once_and_never_counted() -> None:
    timer, task = Timer[TimerTask](), TimerTask()
    assert not timer.add(task, 0, now_ms=0)
    assert timer.size == 0
    assert not task.pending
    assert timer.advance(1_000) == []


def test_adding_again_moves_a_task_and_counts_it_once() -> None:
    timer, task = Timer[TimerTask](), TimerTask()
    timer.add(task, 10, now_ms=0)
    timer.add(task, 50, now_ms=5)
    assert timer.size == 1
    assert timer.advance(54) == []
    assert timer.advance(55) == [task]


def test_a_cancelled_task_can_be_added_anew() -> None:
    timer, task = Timer[TimerTask](), TimerTask()
    timer.add(task, 10, now_ms=0)
    assert task.cancel()
    assert timer.advance(20) == []
    assert timer.add(task, 10, now_ms=20)
    assert timer.advance(30) == [task]


def test_a_due_task_is_not_counted_even_before_it_is_run() -> None:
    timer = Timer[TimerTask]()
    for _ in range(3):
        timer.add(TimerTask(), 5, now_ms=0)
    timer.add(TimerTask(), 500, now_ms=0)
    assert len(timer.advance(5)) == 3
    assert timer.size == 1


def test_a_tick_of_ten_may_fire_nine_early_and_no_more() -> None:
    timer, early = Timer[TimerTask](tick_ms=10), TimerTask()
    timer.add(early, 29, now_ms=0)
    assert timer.advance(19) == []
    assert timer.advance(20) == [early]


def test_the_next_expiration_tells_how_long_to_wait() -> None:
    timer = Timer[TimerTask]()
    assert timer.next_expiration_ms is None
    timer.add(TimerTask(), 399, now_ms=0)
    assert timer.next_expiration_ms == 380, "the bucket of the second level is looked at before"
    assert timer.advance(380) == []
    assert timer.next_expiration_ms == 399


def test_a_clock_that_goes_back_does_nothing() -> None:
    timer = Timer[TimerTask]()
    timer.add(TimerTask(), 100, now_ms=0)
    timer.advance(50)
    assert timer.advance(10) == []
    assert len(timer.advance(100)) == 1


@given(
    delays=st.lists(st.integers(0, 100_000), max_size=50),
    jumps=st.lists(st.integers(0, 20_000), max_size=20),
)
def test_one_jump_gives_what_many_small_steps_give(delays: list[int], jumps: list[int]) -> None:
    stepping, jumping = Timer[TimerTask](), Timer[TimerTask]()
    for delay in delays:
        stepping.add(TimerTask(), delay, now_ms=0)
        jumping.add(TimerTask(), delay, now_ms=0)
    now_ms = 0
    stepped: list[int] = []
    for jump in jumps:
        now_ms += jump
        stepped += [task.expiration_ms for task in stepping.advance(now_ms)]
        stepping.check()
    assert stepped == [task.expiration_ms for task in jumping.advance(now_ms)]
    jumping.check()
    assert stepping.size == jumping.size
