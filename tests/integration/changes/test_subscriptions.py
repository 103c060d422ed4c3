"""Applications that read streams of each other, on real Spark."""

from __future__ import annotations

from pathlib import Path

from harness import Harness
from pyspark.sql import SparkSession
from shop import Feed, Stream, rows, shop, wait_until

from drivetrain import Application, agg, sinks, sources, start, windows

TIMEOUT = "5 min"


def report(directory: Path, *, drop_after: str | None = None) -> Application:
    """The hours of the shop as they are, and counted by four hours by the clock of the shop."""
    app = Application("report")
    hours = app.read(sources.application("shop", "hourly", drop_after=drop_after), name="hours")
    hours.sink(sinks.json(directory / "hours"), name="hours_out")
    again = app.read(sources.application("shop", "mark", drop_after=drop_after), name="marks")
    four = again.window(windows.tumbling("4 h")).aggregate(n=agg.count(), last=agg.max("mark"), step="four")
    four.sink(sinks.json(directory / "four"), name="four_out")
    return app


def test_an_application_reads_streams_of_another_that_runs(drive: Harness, spark: SparkSession) -> None:
    feed = Feed(drive.directory)
    feed.put(9)
    with start(shop(drive.directory, 1), drive.config()) as producer, Stream(feed) as stream:
        wait_until(lambda: len(rows(drive.directory / "marked")) >= 9, lambda: producer.is_running)
        before = {str(query.name): str(query.runId) for query in spark.streams.active}
        with start(report(drive.directory), drive.config()) as reader:
            wait_until(lambda: len(rows(drive.directory / "four")) >= 3, lambda: reader.is_running)
            now = {str(query.name): str(query.runId) for query in spark.streams.active}
            assert before.items() <= now.items(), "a query of the producer was started again"
            stream.is_over.set()
            stream.thread.join()
            producer.stop()
            producer.wait(TIMEOUT)
            reader.stop()
            print(reader.wait(TIMEOUT))
    print(rows(drive.directory / "hours"))
    print(rows(drive.directory / "four"))
