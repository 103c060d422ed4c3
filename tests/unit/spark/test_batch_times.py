"""The stopwatch of a batch: every moment belongs to the innermost span, and to one only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.spark.measure.batch_times import BatchTimes, Phase, computing, spending

MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns

    def pass_ms(self, ms: int) -> None:
        self.ns += ms * MS


def test_a_span_within_another_stops_it() -> None:
    clock = Clock()
    times = BatchTimes(clock)
    with times.active():
        clock.pass_ms(1)
        with spending(Phase.SINK, "db"):
            clock.pass_ms(10)
            with computing():
                clock.pass_ms(100)
                with spending(Phase.SINK, "other"):
                    clock.pass_ms(3)
            clock.pass_ms(20)
        clock.pass_ms(1)
    assert times.ms(Phase.COMPUTING) == 100
    assert times.ms(Phase.SINK) == 33
    assert times.by_name(Phase.SINK) == {"db": 30, "other": 3}


def test_outside_of_a_batch_nothing_is_measured_and_an_error_ends_its_span() -> None:
    clock = Clock()
    times = BatchTimes(clock)
    with computing():
        clock.pass_ms(5)

    def fails() -> None:
        with computing():
            clock.pass_ms(7)
            raise ValueError("mine")

    with times.active(), pytest.raises(ValueError, match="mine"):
        fails()
    with times.active(), spending(Phase.CHANNEL):
        clock.pass_ms(2)
    assert times.ms(Phase.COMPUTING) == 7
    assert times.ms(Phase.CHANNEL) == 2


@given(
    st.lists(st.tuples(st.sampled_from(["open", "close", "wait"]), st.sampled_from(list(Phase))), max_size=50)
)
def test_phases_are_disjoint_and_at_most_the_whole(steps: list[tuple[str, Phase]]) -> None:
    clock, spans = Clock(), []
    times, expected = BatchTimes(clock), dict.fromkeys(Phase, 0)
    for step, phase in steps:
        if step == "open":
            span = times.spending(phase)
            span.__enter__()
            spans.append((phase, span))
        elif step == "close" and spans:
            spans.pop()[1].__exit__(None, None, None)
        else:
            clock.pass_ms(3)
            if spans:
                expected[spans[-1][0]] += 3
    while spans:
        spans.pop()[1].__exit__(None, None, None)
    assert {phase: times.ms(phase) for phase in Phase} == expected
    assert sum(expected.values()) <= clock.ns // MS
