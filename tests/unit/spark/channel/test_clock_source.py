"""Publishing a clock, and the rows that it turns into."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.errors import InternalError
from drivetrain.spark.channel.clock_source import (
    ClockReader,
    publish_clock,
    read_clock,
)
from drivetrain.spark.channel.watermark import watermark_of


def at(clock_ms: int, life: int = 0) -> dict[str, int]:
    return {"clock": clock_ms, "life": life}


def test_a_published_clock_never_goes_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "clock"
    assert read_clock(path) is None
    assert publish_clock(path, 5) == 5
    assert publish_clock(path, 3) == 5
    assert publish_clock(path, -7) == 5
    assert read_clock(path) == 5
    assert publish_clock(path, 6) == 6
    assert os.listdir(path.parent) == ["clock"]


def test_a_clock_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "clock").write_text("later")
    with pytest.raises(InternalError, match="'later'"):
        read_clock(tmp_path / "clock")


def test_before_the_first_clock_there_is_no_row(tmp_path: Path) -> None:
    reader = ClockReader(str(tmp_path / "clock"))
    assert reader.initialOffset() == at(NO_CLOCK_MS)
    rows, end = reader.read(at(NO_CLOCK_MS))
    assert (list(rows), end) == ([], at(NO_CLOCK_MS))


def test_many_changes_are_one_row_and_a_replay_sees_the_same(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    reader = ClockReader(str(path))
    publish_clock(path, 1_000)
    publish_clock(path, 2_500)
    rows, end = reader.read(at(NO_CLOCK_MS))
    expected = [(watermark_of(2_500),)]
    assert (list(rows), end) == (expected, at(2_500))
    publish_clock(path, FINAL_CLOCK_MS)
    assert list(reader.readBetweenOffsets(at(NO_CLOCK_MS), at(2_500))) == expected
    assert list(reader.readBetweenOffsets(at(2_500), at(2_500))) == []


@given(
    clocks=st.lists(st.integers(NO_CLOCK_MS + 1, FINAL_CLOCK_MS), max_size=8),
    start=st.integers(NO_CLOCK_MS, FINAL_CLOCK_MS),
)
def test_the_clock_that_spark_sees_never_goes_back(
    tmp_path_factory: pytest.TempPathFactory, clocks: list[int], start: int
) -> None:
    path = tmp_path_factory.mktemp("clock") / "clock"
    reader = ClockReader(str(path))
    offset = at(start)
    for clock_ms in clocks:
        path.write_text(str(clock_ms))  # a publisher that has forgotten what it said before
        rows, end = reader.read(offset)
        assert end["clock"] >= offset["clock"]
        assert len(list(rows)) == (end != offset)
        offset = end


def test_a_restart_says_the_clock_once_more_even_if_nobody_has_published_one(tmp_path: Path) -> None:
    reader = ClockReader(str(tmp_path / "clock"))
    rows, end = reader.read(at(1_000, 3))
    assert list(rows) == [(watermark_of(1_000),)]
    assert end == at(1_000, 4)
    rows, end = reader.read(end)
    assert (list(rows), end) == ([], at(1_000, 4))
    assert list(reader.readBetweenOffsets(at(1_000, 3), at(1_000, 4))) == [(watermark_of(1_000),)]
