"""Windows of Python folds, against scans over all windows and passes over all messages."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drivetrain.api.states.folds import FoldMonoid, ReduceMonoid
from drivetrain.api.states.monoids import Monoid
from drivetrain.api.windows import Window, everything, session, sliding, tumbling
from drivetrain.core.state.window_state import Group, WindowState, assign

END = 1_000_000
LAST = END - 1000


class Sorted(Monoid[int, list[int]]):
    """All messages of a group, so that nothing lost, doubled or misplaced can hide."""

    def zero(self) -> list[int]:
        return []

    def add(self, state: list[int], message: int) -> list[int]:
        return sorted([*state, message])

    def plus(self, left: list[int], right: list[int]) -> list[int]:
        return sorted([*left, *right])

    def result(self, state: list[int]) -> list[int]:
        return state


def starts(results: list[Any]) -> list[Any]:
    return [(lead[0], int(lead[1].timestamp() * 1000), value, ts) for lead, value, ts in results]


# -- which windows a message is in ------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(1, 60), st.integers(-500, 500))
@example(10, 5, 7)
def test_sliding_windows_are_those_that_a_scan_over_all_windows_finds(size: int, step: int, ts: int) -> None:
    if step > size:
        size, step = step, size
    window = sliding(f"{size} ms", f"{step} ms")
    naive = [(s, s + size) for s in range(-1200 * step, 1200 * step, step) if s <= ts < s + size]
    assert assign(window, ts, END) == naive


@given(st.integers(1, 1000), st.integers(-(10**6), 10**13))
def test_a_tumbling_window_is_one_aligned_window_that_holds_the_message(size: int, ts: int) -> None:
    ((start, end),) = assign(tumbling(f"{size} ms"), ts, END)
    assert start % size == 0
    assert start <= ts < end == start + size


def test_a_session_begins_with_the_message_and_the_global_window_holds_all() -> None:
    assert assign(session("10 ms"), 7, END) == [(7, 17)]
    assert assign(everything(), 7, END) == [(0, LAST)]


# -- tumbling and sliding ------------------------------------------------------------------------------

one = st.tuples(st.sampled_from("ab"), st.integers(0, 120))
messages_ = st.lists(one, max_size=40)
timelines = st.lists(st.one_of(one, st.integers(0, 40)), max_size=50)
fixed = st.sampled_from([tumbling("10 ms"), sliding("20 ms", "10 ms"), sliding("20 ms", "7 ms")])


@given(timelines, fixed, st.integers(1, 5))
def test_fixed_windows_hold_what_one_pass_over_all_messages_finds(
    timeline: list[Any], window: Window, batch_size: int
) -> None:
    """A timeline of messages and clock moves (plain numbers), merged in batches of any size."""
    state = WindowState(window, Sorted(), {})
    expected: dict[Group, list[int]] = defaultdict(list)
    fired: list[Any] = []
    late = expected_late = clock = n = 0
    batch: list[tuple[Group, Any]] = []

    def flush() -> None:
        nonlocal late
        late += state.merge(batch, clock)
        batch.clear()

    for event in timeline:
        if isinstance(event, int):
            flush()
            clock += event
            due = state.fire(clock)
            fired += due
            assert all(ts < clock for _, _, ts in due)
            continue
        key, ts = event
        n += 1
        for start, end in assign(window, ts, END):
            batch.append((((key,), start, end), [n]))
            if end <= clock:
                expected_late += 1
            else:
                expected[(key,), start, end].append(n)
        if len(batch) >= batch_size:
            flush()
    flush()
    fired += state.fire(END)
    assert sorted(starts(fired)) == sorted((k[0], s, v, e - 1) for (k, s, e), v in expected.items())
    assert late == expected_late
    assert state.states == {}
    assert state.next_ms() is None


@given(st.lists(st.integers(0, 99), min_size=1), st.integers(0, 120))
def test_next_is_the_earliest_end_of_what_has_not_fired(stamps: list[int], clock: int) -> None:
    state = WindowState(tumbling("10 ms"), Sorted(), {})
    state.merge([(((), *assign(state.window, ts, END)[0]), [ts]) for ts in stamps], 0)
    state.fire(clock)
    ends = {ts - ts % 10 + 10 for ts in stamps}
    assert state.next_ms() == min((e for e in ends if e > clock), default=None)


def test_a_window_fires_when_the_clock_is_at_its_end_and_not_before() -> None:
    state = WindowState(tumbling("10 ms"), Sorted(), {})
    state.merge([((("a",), 0, 10), [1])], 0)
    assert state.fire(9) == []
    ((lead, value, ts),) = state.fire(10)
    assert (lead[0], value, ts) == ("a", [1], 9)
    assert state.fire(10) == []


def test_a_message_for_a_window_that_has_fired_is_late_and_merged_nowhere() -> None:
    state = WindowState(tumbling("10 ms"), Sorted(), {})
    assert state.merge([((("a",), 0, 10), [1])], 10) == 1
    assert state.states == {}


# -- sessions ------------------------------------------------------------------------------------------


def naive_sessions(messages: list[tuple[str, int]], gap: int) -> list[tuple[str, int, list[int], int]]:
    """Sort each key's messages; a new session begins where the distance is the gap or more."""
    made = []
    for key in sorted({k for k, _ in messages}):
        stamps = sorted(ts for k, ts in messages if k == key)
        runs = [[stamps[0]]]
        for ts in stamps[1:]:
            if ts - runs[-1][-1] >= gap:
                runs.append([])
            runs[-1].append(ts)
        made += [(key, run[0], run, run[-1] + gap - 1) for run in runs]
    return made


def no_overlap(state: WindowState) -> None:
    open_ = sorted(state.states)
    for (key, _, end), (other, start, _) in itertools.pairwise(open_):
        assert key != other or end <= start


@given(messages_, st.integers(1, 30), st.randoms(use_true_random=False), st.integers(1, 5))
def test_sessions_are_those_of_one_pass_in_any_order_and_batching(
    messages: list[tuple[str, int]], gap: int, random: Any, batch_size: int
) -> None:
    window = session(f"{gap} ms")
    random.shuffle(messages)
    state = WindowState(window, Sorted(), {})
    for i in range(0, len(messages), batch_size):
        batch = [(((k,), *assign(window, ts, END)[0]), [ts]) for k, ts in messages[i : i + batch_size]]
        assert state.merge(batch, 0) == 0
        no_overlap(state)
    assert sorted(starts(state.fire(END))) == sorted(naive_sessions(messages, gap))


@given(messages_, st.integers(1, 30), st.integers(0, 20))
def test_sessions_are_the_same_while_the_clock_follows_messages_that_are_not_late(
    messages: list[tuple[str, int]], gap: int, disorder: int
) -> None:
    """Messages arrive at most `disorder` behind the newest; the clock stays that far behind it."""
    window = session(f"{gap} ms")
    arriving = sorted(messages, key=lambda m: m[1] + (m[1] * 7919) % (disorder + 1))
    state = WindowState(window, Sorted(), {})
    fired: list[Any] = []
    clock = 0
    for key, ts in arriving:
        assert state.merge([(((key,), ts, ts + gap), [ts])], clock) == 0
        no_overlap(state)
        clock = max(clock, ts - disorder)
        fired += state.fire(clock)
    fired += state.fire(END)
    assert sorted(starts(fired)) == sorted(naive_sessions(messages, gap))


def test_a_message_between_two_sessions_makes_them_one() -> None:
    state = WindowState(session("10 ms"), Sorted(), {})
    state.merge([((("a",), 0, 10), [0]), ((("a",), 18, 28), [18])], 0)
    assert len(state.states) == 2
    state.merge([((("a",), 9, 19), [9])], 0)
    assert state.states == {(("a",), 0, 28): [0, 9, 18]}


def test_a_message_exactly_one_gap_later_begins_a_session_fired_or_not() -> None:
    for clock in (0, 10):
        state = WindowState(session("10 ms"), Sorted(), {})
        state.merge([((("a",), 0, 10), [0])], 0)
        fired = state.fire(clock)
        state.merge([((("a",), 10, 20), [10])], clock)
        assert len(fired) + len(state.states) == 2


def test_sessions_of_different_keys_do_not_merge() -> None:
    state = WindowState(session("10 ms"), Sorted(), {})
    state.merge([((("a",), 0, 10), [0]), ((("b",), 5, 15), [5])], 0)
    assert len(state.states) == 2


# -- folds, reductions, the global window -----------------------------------------------------------------


def test_a_fold_is_given_messages_in_the_order_in_which_they_come() -> None:
    state = WindowState(tumbling("10 ms"), FoldMonoid(str, lambda s, m: s + m), {})
    group = (("a",), 0, 10)
    state.merge([(group, "x"), (group, "y")], 0)
    state.merge([(group, "z")], 0)
    assert [v for _, v, _ in state.fire(10)] == ["xyz"]


def test_a_fold_into_a_falsy_state_goes_on_from_it() -> None:
    state = WindowState(tumbling("10 ms"), FoldMonoid(lambda: 1, lambda s, m: s * m), {})
    group = (("a",), 0, 10)
    state.merge([(group, 0), (group, 5)], 0)
    assert [v for _, v, _ in state.fire(10)] == [0]


@given(st.lists(st.integers(), min_size=1), st.lists(st.integers(0, 5)))
def test_a_reduction_over_parts_is_that_over_all(values: list[int], cuts: list[int]) -> None:
    monoid = ReduceMonoid(max)
    parts, at = [], 0
    for cut in [*cuts, len(values)]:
        part = monoid.zero()
        for value in values[at : at + cut]:
            part = monoid.add(part, value)
        parts.append(part)
        at += cut
    whole = monoid.zero()
    for part in parts:
        whole = monoid.plus(whole, part)
    assert monoid.result(whole) == max(values[:at] or values)


def test_a_reduction_of_one_message_does_not_call_the_function() -> None:
    def never(_left: Any, _right: Any) -> Any:
        raise AssertionError("called")

    monoid = ReduceMonoid(never)
    assert monoid.result(monoid.add(monoid.zero(), None)) is None


def test_a_fold_refuses_to_merge_two_states() -> None:
    with pytest.raises(TypeError, match="cannot merge"):
        FoldMonoid(int, max).plus(1, 2)


def test_the_global_window_fires_once_at_the_end_of_time() -> None:
    state = WindowState(everything(), Sorted(), {})
    state.merge([((("a",), 0, LAST), [1])], 0)
    assert state.fire(LAST - 1) == []
    assert state.fire(LAST) == [(("a",), [1], LAST - 1)]
    assert state.states == {}


def test_an_accumulating_global_window_tells_the_keys_that_changed_and_keeps_all() -> None:
    state = WindowState(everything(emission="accumulating"), Sorted(), {})
    state.merge([((("a",), 0, LAST), [1]), ((("b",), 0, LAST), [2])], 0)
    assert state.fire(5) == [(("a",), [1], 5), (("b",), [2], 5)]
    state.merge([((("a",), 0, LAST), [3])], 5)
    assert state.fire(9) == [(("a",), [1, 3], 9)]
    assert state.fire(9) == []
    assert len(state.states) == 2
