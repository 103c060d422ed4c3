"""What a subscriber is told of its channel, from real entries on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.core.channel.channel_log import Segment, SubscriberId
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel.backlog import ChannelWatch


def appended(producer: ChannelStore, batch: int, rows: int, clock_ms: int) -> None:
    segments = (
        [Segment(f"segments/{batch}.arrow", rows, rows * 10, 0, clock_ms, clock_ms + 700)] if rows else []
    )
    producer.append(batch, segments, clock_ms)


def test_lag_is_what_waits_and_kept_is_what_nobody_has_trimmed(tmp_path: Path) -> None:
    producer = ChannelStore(str(tmp_path), fragment="p")
    watch = ChannelWatch("c", "p", "s", ChannelStore(str(tmp_path)))
    assert watch.look(None, None).clock_ms is None
    appended(producer, 0, 4, 1_000)
    appended(producer, 1, 5, 2_000)
    appended(producer, 2, 0, 4_000)
    seen = watch.look(None, None)
    assert (seen.lag_rows, seen.lag_bytes, seen.clock_ms, seen.lag_ms) == (9, 90, 4_000, None)
    seen = watch.look(1, 1_000)
    assert (seen.lag_rows, seen.lag_bytes, seen.lag_ms, seen.kept_bytes) == (5, 50, 3_000, 90)
    assert watch.newest_taken_ms == 1_700
    producer.trim({SubscriberId("s"): 1})
    assert watch.look(3, 4_000).kept_bytes == 50
    assert (seen.channel, seen.producer, seen.subscriber) == ("c", "p", "s")


def test_behind_the_end_of_the_input_the_newest_message_says_how_far_behind(tmp_path: Path) -> None:
    producer = ChannelStore(str(tmp_path), fragment="p")
    watch = ChannelWatch("c", "p", "s", ChannelStore(str(tmp_path)))
    appended(producer, 0, 4, 1_000)
    producer.append_clock(FINAL_CLOCK_MS)
    assert watch.look(0, 500).lag_ms == 1_200
    assert watch.look(2, FINAL_CLOCK_MS).lag_ms == 0


def test_a_watch_that_comes_late_reads_what_is_left_of_the_log(tmp_path: Path) -> None:
    producer = ChannelStore(str(tmp_path), fragment="p")
    late = ChannelStore(str(tmp_path))
    for batch in range(5):
        appended(producer, batch, 1, 1_000 * (batch + 1))
    assert late.start() == 0  # it has listed the log, then much of it goes
    producer.trim({SubscriberId("s"): 3})
    watch = ChannelWatch("c", "p", "s", late)
    seen = watch.look(4, 4_000)
    assert (seen.lag_rows, seen.kept_bytes) == (1, 20)


def test_a_damaged_entry_counts_until_it_was_taken(tmp_path: Path) -> None:
    producer = ChannelStore(str(tmp_path), fragment="p")
    for batch in range(3):
        appended(producer, batch, 2, 1_000 * (batch + 1))
    (tmp_path / "log" / f"{0:020d}.json").write_text("torn")
    with pytest.raises(MessageLossError):
        ChannelWatch("c", "p", "s", ChannelStore(str(tmp_path))).look(0, None)
    seen = ChannelWatch("c", "p", "s", ChannelStore(str(tmp_path))).look(1, 1_000)
    assert (seen.lag_rows, seen.clock_ms) == (4, 3_000)
