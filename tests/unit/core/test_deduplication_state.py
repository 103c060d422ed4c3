"""Which messages of a key pass, against a list of those that did."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.state.deduplication_state import DeduplicationState
from drivetrain.errors import InputError, InternalError

MESSAGES = st.lists(st.tuples(st.integers(-60, 60), st.sampled_from([b"a", b"b", b"c"])), max_size=60)


def one_pass(messages: list[tuple[int, bytes]], span: int) -> list[tuple[int, bytes]]:
    passed: dict[bytes, list[int]] = defaultdict(list)
    for time, key in sorted(messages):
        if not passed[key] or time - passed[key][-1] > span:
            passed[key].append(time)
    return sorted((time, key) for key, times in passed.items() for time in times)


@given(MESSAGES, st.integers(0, 25), st.lists(st.integers(-70, 70), max_size=6))
def test_a_message_passes_that_is_farther_than_the_span_from_the_last_one_that_did(
    messages: list[tuple[int, bytes]], span: int, clocks: list[int]
) -> None:
    first, found, rest = DeduplicationState(span), [], sorted(messages)
    for clock in [*sorted(clocks), 100]:
        found += [(time, key) for time, key in rest if time <= clock and first.passes(key, time)]
        rest = [message for message in rest if message[0] > clock]
        first.forget(clock)
        first = DeduplicationState(span, first.saved())
    assert found == one_pass(messages, span)
    assert first.forgets_at_us is None or first.forgets_at_us > 100


def test_times_are_forgotten_when_nothing_can_be_near_them() -> None:
    first = DeduplicationState(10)
    assert first.forgets_at_us is None
    assert first.passes(b"a", 13)
    assert first.forgets_at_us == 30
    first.forget(29)
    assert first.forgets_at_us == 30
    first.forget(30)
    assert first.forgets_at_us is None
    assert DeduplicationState(10, first.saved()).passes(b"a", 30)


def test_what_comes_out_of_order_or_of_another_state_is_refused() -> None:
    first = DeduplicationState(10)
    first.passes(b"a", 13)
    with pytest.raises(InternalError, match="order of their times"):
        first.passes(b"b", 12)
    with pytest.raises(InputError, match="another span"):
        DeduplicationState(11, first.saved())
    with pytest.raises(InputError, match="damaged"):
        DeduplicationState(10, b"\xc1")
