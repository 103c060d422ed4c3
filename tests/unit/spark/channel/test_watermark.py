"""Spark's watermark for a clock, and back."""

from __future__ import annotations

import doctest
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.clock import time_bounds
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, LAST_MS, NO_CLOCK_MS
from drivetrain.errors import InternalError
from drivetrain.spark.channel import watermark
from drivetrain.spark.channel.watermark import END_WATERMARK_MS, clock_of, parse_watermark, watermark_of


@pytest.mark.parametrize("module", [watermark, time_bounds])
def test_the_examples_hold(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted
    assert not result.failed


@given(clock_ms=st.integers(NO_CLOCK_MS + 1, FINAL_CLOCK_MS))
def test_a_clock_is_its_watermark_and_back(clock_ms: int) -> None:
    assert clock_of(watermark_of(clock_ms)) == clock_ms
    assert watermark_of(clock_ms) > 0


@given(ms=st.integers(NO_CLOCK_MS, LAST_MS), lag_ms=st.integers(0, LAST_MS))
def test_only_the_end_of_the_stream_is_the_final_clock_whatever_is_taken_off(ms: int, lag_ms: int) -> None:
    of_data = clock_of(watermark.SHIFT_MS + ms)
    assert of_data is None or of_data < FINAL_CLOCK_MS
    assert clock_of(END_WATERMARK_MS - lag_ms) == FINAL_CLOCK_MS


@given(moment=st.datetimes(timezones=st.just(UTC)))
def test_a_watermark_is_read_from_sparks_reports(moment: datetime) -> None:
    ms = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    text = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert abs(parse_watermark(text) - ms) <= 1
    # The calendar repeats itself after 400 years, and Spark writes a plus before years of five digits.
    later = f"{moment.year + 10_000:+d}{text[4:]}"
    assert parse_watermark(later) - parse_watermark(text) == 25 * 146_097 * 86_400_000


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(InternalError, match="'soon'"):
        parse_watermark("soon")
