"""The size of batches: whole backlogs at once, until measurement says that they take too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.channel.batch_size import GROWTH, BatchSize
from drivetrain.errors import InternalError


def test_a_fast_pipeline_gets_full_batches_from_the_first_to_the_last() -> None:
    size = BatchSize(0.001, 10_000)
    for _ in range(20):
        assert size.record(1.0, 4_000) == 1.0


def test_small_batches_while_it_keeps_up_do_not_lower_what_a_backlog_gets() -> None:
    size = BatchSize(0.001, 10_000)
    for _ in range(100):
        size.record(0.000_001, 300)  # three messages a second would be their speed
    assert size.share == 1.0


def test_a_slow_sink_gets_what_it_can_take_in_the_target_time() -> None:
    size = BatchSize(0.001, 10_000)
    assert size.record(1.0, 100_000) == pytest.approx(0.1)
    assert size.record(0.1, 10_000) == pytest.approx(0.1)


def test_it_grows_again_when_what_was_held_back_is_fast_and_not_more_than_fourfold_at_once() -> None:
    size = BatchSize(0.001, 10_000)
    size.record(1.0, 1_000_000)
    assert size.record(0.01, 100) == pytest.approx(0.01 * GROWTH)
    assert size.record(0.002, 100) == pytest.approx(0.04)  # it was not held back
    assert size.record(0.04, 8_000) == pytest.approx(0.05)


def test_what_nobody_can_measure_changes_nothing() -> None:
    size = BatchSize(0.001, 10_000)
    assert size.record(0.0, 50_000) == 1.0  # a batch that only moved the clock
    with pytest.raises(InternalError):
        size.record(-0.1, 10)
    assert size.share == 1.0


@given(st.floats(1.0, 1e6), st.floats(0, 500), st.floats(0.0001, 1.0))
def test_at_any_constant_speed_batches_settle_below_the_target(
    units_per_s: float, overhead_ms: float, floor: float
) -> None:
    """`units_per_s` of a largest batch of 1e5 units, each batch with an overhead."""
    size = BatchSize(floor, 10_000)
    duration_ms = 0.0
    for _ in range(40):
        duration_ms = overhead_ms + size.share * 1e5 / units_per_s * 1_000
        size.record(size.share, duration_ms)
        size.check()
    settled_ms = overhead_ms + size.share * 1e5 / units_per_s * 1_000
    assert settled_ms <= 10_000 * 1.01 or size.share == size.floor
    assert settled_ms >= 10_000 * 0.5 or size.share == 1.0
