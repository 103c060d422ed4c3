"""States as of an application time, against one pass over all messages."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.api.folds import FoldMonoid, ReduceMonoid
from drivetrain.api.monoids import Monoid
from drivetrain.api.windows import Window, everything, session, sliding, tumbling
from drivetrain.core.checkpoint_time import next_time_ms
from drivetrain.core.clock import FINAL_CLOCK_MS
from drivetrain.core.two_state import KeyedStates, Picture, WindowedStates
from drivetrain.core.window_state import assign
from drivetrain.errors import InternalError


class Held(Monoid[int, list[int]]):
    """All messages, in place where it can: nothing that is lost, doubled or shared can hide."""

    def zero(self) -> list[int]:
        return []

    def add(self, state: list[int], message: int) -> list[int]:
        state.append(message)
        return state

    def plus(self, left: list[int], right: list[int]) -> list[int]:
        left.extend(right)
        return left

    def result(self, state: list[int]) -> list[int]:
        return sorted(state)


STEP = 10
FOLD = FoldMonoid(list, lambda state, message: [*state, message])


# -- the rules of the reference ----------------------------------------------------------------------------


def test_the_checkpoint_state_takes_only_what_is_older_and_the_current_state_takes_all() -> None:
    states = KeyedStates[str](Held(), STEP)
    assert states.bind(20)
    for ts in (5, 19, 20, 31):
        states.update("a", ts, ts)
    assert sorted(states.get("a")) == [5, 19, 20, 31]
    assert states.advance(19) is None
    assert states.advance(20) == Picture(20, {"a": [5, 19]})
    assert sorted(states.get("a")) == [5, 19, 20, 31]


def test_when_the_clock_passes_the_time_both_parts_are_merged_and_the_next_time_is_above_all_seen() -> None:
    states = KeyedStates[str](Held(), STEP)
    states.bind(20)
    for ts in (5, 19, 20, 31):
        states.update("a", ts, ts)
    states.advance(20)
    assert states.next_checkpoint_ms() == 40
    assert states.bind(states.next_checkpoint_ms())
    states.update("b", 39, 39)
    states.update("a", 40, 40)
    picture = states.advance(44)
    assert picture is not None
    assert {key: sorted(state) for key, state in picture.states.items()} == {"a": [5, 19, 20, 31], "b": [39]}


def test_states_do_not_hold_the_clock_when_no_message_comes() -> None:
    states = KeyedStates[str](Held(), STEP)
    for clock in (7, 20, 1_000, 1_001, 5_000):
        states.bind(states.next_checkpoint_ms())
        picture = states.advance(clock)
        assert states.clock_ms == clock
        assert picture is None or picture.states == {}
    assert states.picture_ms == 1_010


def test_a_picture_costs_what_has_changed_since_the_last_one() -> None:
    states = KeyedStates[int](Held(), STEP, states={key: [key] for key in range(1_000)})
    states.bind(20)
    states.update(3, 15, 0)
    picture = states.advance(20)
    assert picture == Picture(20, {3: [3, 0]})
    assert states.keys() == set(range(1_000))


def test_a_time_that_the_clock_has_reached_cannot_be_bound_any_more() -> None:
    states = KeyedStates[str](Held(), STEP)
    states.advance(30)
    assert not states.bind(30)
    assert states.checkpoint_ms is None
    assert states.bind(40)


@pytest.mark.parametrize(("time", "step"), [(45, 10), (60, 15), (40, 10), (30, 20)])
def test_a_time_that_cuts_through_panes_or_falls_is_refused_and_changes_nothing(time: int, step: int) -> None:
    states = KeyedStates[str](Held(), STEP)
    states.bind(50)
    with pytest.raises(InternalError, match="cannot follow"):
        states.bind(time, step)
    assert (states.checkpoint_ms, states.step_ms) == (50, STEP)


def test_a_clock_that_goes_back_is_refused() -> None:
    states = KeyedStates[str](Held(), STEP)
    states.advance(30)
    with pytest.raises(InternalError, match="went back"):
        states.advance(29)


def test_a_late_message_is_counted_and_in_the_current_state_but_in_no_picture_that_was_made() -> None:
    states = KeyedStates[str](Held(), STEP)
    states.bind(20)
    states.update("a", 15, 15)
    picture = states.advance(25)
    states.update("a", 16, 16)
    assert picture == Picture(20, {"a": [15]})
    assert states.get("a") == [15, 16]
    assert states.late == 1


def test_who_reads_a_state_cannot_change_it() -> None:
    states = KeyedStates[str](Held(), STEP)
    states.update("a", 1, 1)
    states.bind(20)
    states.update("a", 25, 25)
    states.get("a").append(99)
    assert states.get("a") == [1, 25]
    assert states.get("b", 0) == 0


def test_reductions_and_folds_have_pictures_too() -> None:
    largest = KeyedStates[str](ReduceMonoid(max), STEP)
    folded = KeyedStates[str](FOLD, STEP)
    for states in (largest, folded):
        states.bind(20)
        for ts in (25, 12, 19, 11, 30):
            states.update("a", ts, ts)
    assert (largest.advance(20), largest.get("a")) == (Picture(20, {"a": 19}), 30)
    assert (folded.advance(20), folded.get("a")) == (Picture(20, {"a": [12, 19, 11]}), [25, 12, 19, 11, 30])
    folded.bind(40)
    assert folded.advance(40) == Picture(40, {"a": [12, 19, 11, 25, 30]})


# -- against one pass ----------------------------------------------------------------------------------------

message = st.tuples(st.sampled_from("abc"), st.integers(0, 60))
bound = st.tuples(st.integers(1, 4), st.sampled_from([1, 1, 1, 2]))
timelines = st.lists(st.one_of(message, st.integers(0, 25).map(lambda ms: ("clock", ms)), bound), max_size=60)


@given(timelines, st.sampled_from([Held(), FOLD]), st.booleans())
def test_every_picture_is_one_pass_over_the_messages_that_are_older(
    timeline: list[Any], monoid: Monoid[Any, Any], by_rule: bool
) -> None:
    """Messages at or above the clock, clock moves, and binds of times however far ahead, in any order."""
    states = KeyedStates[str](monoid, STEP)
    came: list[tuple[str, int, int]] = []
    pictured: dict[str, list[int]] = {}
    clock = 0
    states.advance(0)
    for number, (kind, amount) in enumerate(timeline):
        if kind == "clock":
            clock += amount
            picture = states.advance(clock)
            assert states.clock_ms == clock
            if picture is not None:
                pictured |= {key: sorted(state) for key, state in picture.states.items()}
                older: dict[str, list[int]] = defaultdict(list)
                for key, ts, told in came:
                    if ts < picture.checkpoint_ms:
                        older[key].append(told)
                assert pictured == {key: sorted(told) for key, told in older.items()}
        elif isinstance(kind, str):
            states.update(kind, clock + amount, number)
            came.append((kind, clock + amount, number))
        else:
            step = states.step_ms * amount
            time = next_time_ms(clock, step) + (kind - 1) * step
            time = states.next_checkpoint_ms() if by_rule else max(time, states.checkpoint_ms or time)
            if by_rule or time % step == 0:
                assert states.bind(time, None if by_rule else step)
        states.check()
        now: dict[str, list[int]] = defaultdict(list)
        for key, _, told in came:
            now[key].append(told)
        assert {key: sorted(states.get(key)) for key in states.keys()} == now  # noqa: SIM118 - a method
        assert all(states.get(key) is not None for key in now)


windows = st.sampled_from([tumbling("10 ms"), tumbling("7 ms"), sliding("20 ms", "6 ms"), session("5 ms")])


def sessions(stamps: list[tuple[int, int]], gap: int) -> list[tuple[int, int, list[int]]]:
    runs: list[list[tuple[int, int]]] = []
    for ts, told in sorted(stamps):
        if runs and ts - runs[-1][-1][0] < gap:
            runs[-1].append((ts, told))
        else:
            runs.append([(ts, told)])
    return [(run[0][0], run[-1][0] + gap, sorted(told for _, told in run)) for run in runs]


def one_pass(
    window: Window, messages: list[tuple[str, int, int]]
) -> dict[tuple[tuple[str], int, int], list[int]]:
    """All windows of these messages, each with the numbers of its messages."""
    found: dict[tuple[tuple[str], int, int], list[int]] = defaultdict(list)
    for key in {key for key, _, _ in messages}:
        own = [(ts, told) for k, ts, told in messages if k == key]
        if window.kind == "session":
            found |= {((key,), start, end): told for start, end, told in sessions(own, window.size_ms)}
            continue
        for ts, told in own:
            for start, end in assign(window, ts, FINAL_CLOCK_MS):
                found[(key,), start, end].append(told)
    return {group: sorted(told) for group, told in found.items()}


@given(timelines, windows, st.booleans())
def test_windows_fire_once_and_every_picture_has_the_windows_that_are_open_at_its_time(
    timeline: list[Any], window: Window, folds: bool
) -> None:
    monoid: Monoid[Any, Any] = FOLD if folds and window.kind != "session" else Held()
    states = WindowedStates(window, monoid, STEP)
    came: list[tuple[str, int, int]] = []
    fired: list[tuple[Any, int, list[int]]] = []
    clock = 0
    states.advance(0)

    def advance(to: int) -> None:
        results, picture = states.advance(to)
        fired.extend((lead[0], ts + 1, sorted(value)) for lead, value, ts in results)
        if picture is not None:
            older = one_pass(window, [m for m in came if m[1] < picture.checkpoint_ms])
            is_open = {group: told for group, told in older.items() if group[2] > picture.checkpoint_ms}
            assert {group: sorted(state) for group, state in picture.states.items()} == is_open

    for number, (kind, amount) in enumerate(timeline):
        if kind == "clock":
            clock += amount
            advance(clock)
        elif isinstance(kind, str):
            states.update((kind,), clock + amount, number)
            came.append((kind, clock + amount, number))
        else:
            step = states.step_ms * amount
            time = max(next_time_ms(clock, step) + (kind - 1) * step, states.checkpoint_ms or 0)
            if time % step == 0:
                assert states.bind(time, step)
        states.check()
        now = {group: told for group, told in one_pass(window, came).items() if group[2] > clock}
        assert {group: sorted(state) for group, state in states.current().items()} == now
    advance(10**9)
    expected = [(group[0][0], group[2], told) for group, told in one_pass(window, came).items()]
    assert sorted(fired) == sorted(expected)
    assert states.late == 0


def test_the_global_window_is_refused() -> None:
    with pytest.raises(InternalError, match="for each key"):
        WindowedStates(everything(), Held(), STEP)
