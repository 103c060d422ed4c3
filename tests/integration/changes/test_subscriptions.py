"""Applications that read streams of each other, on real Spark; compared with what the producer shows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from harness import Harness
from pyspark.sql import SparkSession
from reports import report
from shop import Feed, Stream, marks, rows, shop, wait_until

from drivetrain import start
from drivetrain.core.job.run_progress import NoticeGiven, ProgressEvent, QuietListener
from drivetrain.errors import UserError
from drivetrain.runtime.control_requests import ask_to_unsubscribe
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.subscription_check import StartedOverError
from drivetrain.spark.run.running_application import RunningApplication

TIMEOUT = "5 min"


class Notices(QuietListener):
    """The notices of a run."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_event(self, event: ProgressEvent) -> None:
        if isinstance(event, NoticeGiven):
            self.texts.append(event.text)


def of_state(drive: Harness) -> RunDirectory:
    return RunDirectory(str(drive.directory / "state"), "shop", {})


def seen(directory: Path) -> list[int]:
    """The messages that the reader shows, each once."""
    found = [row["mark"] // 100 for row in rows(directory / "seen")]
    assert len(set(found)) == len(found), "a message is shown twice"
    return sorted(found)


def hour(moment: object) -> int:
    """The hour of the feed that a time is."""
    at = dt.datetime.fromisoformat(str(moment))
    return int((at - dt.datetime(2024, 1, 1, tzinfo=dt.UTC)).total_seconds()) // 3600


def check_against_the_shop(drive: Harness, feed: Feed) -> None:
    """What the reader shows is what one query over the producer's output gives, from its first message on."""
    found = seen(drive.directory)
    assert found == list(range(found[0], feed.count)), "a message is missing"
    hours = sorted(hour(row["window_start"]) for row in rows(drive.directory / "hourly"))
    whole = {first: [h for h in hours if first <= h < first + 4] for first in range(0, hours[-1] + 1, 4)}
    four = {hour(row["window_start"]): row for row in rows(drive.directory / "four")}
    assert four, "no window of the reader has ended"
    last = max(four)
    expected = [first for first in whole if min(four) <= first <= last]
    assert sorted(four) == expected, "a window is missing, or not whole"
    for first, row in four.items():
        assert (row["hours"], row["n"]) == (len(whole[first]), 2 * len(whole[first]))


def shows_all(drive: Harness, feed: Feed) -> bool:
    """Whether the reader has shown every message, and every window of four hours that has ended."""
    found = seen(drive.directory)
    ended = ((feed.count - 1) // 2 - 1) // 4  # the hour of the newest message is open, and so is its result
    four = [hour(row["window_start"]) for row in rows(drive.directory / "four")]
    return bool(found and four) and found[-1] == feed.count - 1 and max(four) // 4 + 1 >= ended


def test_an_application_reads_streams_of_another_that_runs(drive: Harness, spark: SparkSession) -> None:
    feed = Feed(drive.directory)
    feed.put(9)
    with start(shop(drive.directory, 1), drive.config()) as producer, Stream(feed) as stream:
        wait_until(lambda: len(marks(drive.directory)) >= 9, lambda: producer.is_running)
        before = {str(query.name): str(query.runId) for query in spark.streams.active}
        listener = Notices()
        with start(report(drive.directory), drive.config(), listener) as reader:
            wait_until(lambda: len(rows(drive.directory / "four")) >= 2, lambda: reader.is_running)
            now = {str(query.name): str(query.runId) for query in spark.streams.active}
            assert before.items() <= now.items(), "a query of the producer was started again"
            stream.is_over.set()
            stream.thread.join()
            wait_until(lambda: shows_all(drive, feed), lambda: reader.is_running)
            check_against_the_shop(drive, feed)
            producer.stop()
            producer.wait(TIMEOUT)
            wait_until(lambda: any("shop, which does not run" in text for text in listener.texts))
            assert reader.is_running, "it waits for more"
    with pytest.raises(UserError, match="cannot begin to publish with checkpoints") as refused:
        start(shop(drive.directory, 1), drive.config(checkpoint__mode="on")).wait(TIMEOUT)
    assert "report" in str(refused.value.got)


@pytest.mark.nightly("three starts, and a repair that another application makes")
def test_a_reader_that_was_away_finds_all_and_a_change_of_what_it_reads_is_refused(drive: Harness) -> None:
    feed = Feed(drive.directory)
    feed.put(9)
    with start(shop(drive.directory, 1), drive.config()) as producer, Stream(feed) as stream:
        wait_until(lambda: len(marks(drive.directory)) >= 9, lambda: producer.is_running)
        with start(report(drive.directory), drive.config()) as reader:
            wait_until(lambda: len(rows(drive.directory / "four")) >= 2, lambda: reader.is_running)
            subscriptions = of_state(drive).versions.version(producer.version or 0).subscriptions
            assert {(one.stream, one.source) for one in subscriptions} == {
                ("mark", "marks"),
                ("hourly", "hours"),
            }
            a_change_that_others_would_notice_is_refused(drive, producer)
            reader.stop()
            reader.wait(TIMEOUT)
        a_lost_segment_is_left(drive, feed)
        with start(report(drive.directory), drive.config()) as reader:
            stream.is_over.set()
            stream.thread.join()
            wait_until(lambda: shows_all(drive, feed), lambda: reader.is_running)
            check_against_the_shop(drive, feed)
            ask_to_unsubscribe(of_state(drive), "report", "marks")
            with pytest.raises(StartedOverError, match="does not keep its stream mark"):
                reader.wait(TIMEOUT)


def a_change_that_others_would_notice_is_refused(drive: Harness, producer: RunningApplication) -> None:
    """Other code of the stream is refused unless it is said; a change beside it is not."""
    with pytest.raises(UserError, match="would be made in another way") as refused:
        producer.update(shop(drive.directory, 2))
    assert "/marks reads mark" in str(refused.value.got)
    producer.update(shop(drive.directory, 1, more=True), TIMEOUT)
    with pytest.raises(UserError, match="no longer there"):
        producer.remove("mark")


def a_lost_segment_is_left(drive: Harness, feed: Feed) -> None:
    """What the reader has not read is damaged while it is away; the producer repairs it."""
    channel = next(c for c in (of_state(drive).path / "channels").iterdir() if "marks" in c.name)
    count = feed.count
    wait_until(lambda: feed.count > count + 9)
    wait_until(lambda: len(list((channel / "segments").iterdir())) >= 2)
    max((channel / "segments").iterdir(), key=lambda file: file.stat().st_mtime_ns).write_bytes(b"")
