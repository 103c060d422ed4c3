"""The pause that a scaling is likely to cost, judged by earlier ones."""

from __future__ import annotations

import pytest

from drivetrain.core.change.scaling_state import PlannedScaling, ScalingState, likely_pause_ms


def done(size_bytes: int, took_ms: int, paused_ms: int, why: str | None = None) -> ScalingState:
    return ScalingState("hourly", 2, 4, size_bytes).drained().ended(took_ms, paused_ms, why)


def test_without_an_earlier_scaling_the_pause_is_unknown() -> None:
    assert likely_pause_ms([], 1_000) is None
    failed = done(1_000, 500, 900, "the disk is full")
    assert likely_pause_ms([failed], 1_000) is None, "one that failed did not do all the work"
    waiting = ScalingState("hourly", 2, 4, 1_000)
    assert likely_pause_ms([waiting], 1_000) is None


@pytest.mark.parametrize(("size_bytes", "pause_ms"), [(1_000, 3_000), (4_000, 6_000), (0, 2_000)])
def test_dividing_takes_time_in_proportion_to_the_size_and_the_restart_does_not(
    size_bytes: int, pause_ms: int
) -> None:
    assert likely_pause_ms([done(9, 1, 90_000), done(1_000, 1_000, 3_000)], size_bytes) == pause_ms


def test_an_empty_state_that_was_scaled_says_how_long_the_restart_takes() -> None:
    assert likely_pause_ms([done(0, 100, 2_000)], 5_000) == 2_000


def test_the_plan_names_size_partitions_and_pause() -> None:
    planned = PlannedScaling("hourly", 1, 8, 3_000_000, 4_000)
    for part in ("hourly", "3 MB in 1 partition,", "into 8", "only this fragment pauses, for about 4.0 s"):
        assert part in planned.in_words
