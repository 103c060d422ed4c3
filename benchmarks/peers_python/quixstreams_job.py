"""The jobs in Quix Streams, from a topic to a topic: a process per core in one consumer group.

State is in RocksDB with changelog topics, and every update of a window is sent, because those that are open
at the end of the input would not be sent otherwise. Messages are processed at least once, or in transactions
of at most `exactly_once` milliseconds. A stream never ends: a job is over when all processes together have
counted all messages.

    .venv-peers/quixstreams/bin/python benchmarks/peers_python/quixstreams_job.py '{"job": "windows", …}'
"""

import threading
import time
from datetime import datetime
from multiprocessing import get_context

from meter import for_warm_up, given, measured
from quixstreams import Application
from quixstreams.dataframe.windows import Count, Sum
from quixstreams.models import Serializer

DAY_MS = 86_400_000


class Row(Serializer):
    """A pair of a key and a value, of which the value is sent."""

    def __call__(self, value, ctx):
        return value[1].encode()


def event_time(value, _headers, _timestamp, _timestamp_type):
    return int(datetime.fromisoformat(value["ts"]).timestamp() * 1000)


def windows(app, job, tell):
    # The partitions are read side by side: the grace period is longer than the events last.
    tens = by_key(app, job).tumbling_window(10_000, grace_ms=DAY_MS)
    return counted(app, job, tell, tens, row)


def sessions(app, job, tell):
    gap_ms = job["gap_ms"]
    gaps = by_key(app, job).session_window(gap_ms, grace_ms=DAY_MS)

    # The end of a session of its own is a millisecond after the last event.
    def bounded(window, key, *_about):
        bounds = f"{window['start']},{window['end'] - 1 + gap_ms}"
        return f"{bounds},{key}", f"{window['n']},{window['total']}"

    return counted(app, job, tell, gaps, bounded)


def by_key(app, job):
    events = app.topic(job["topic"], value_deserializer="json", timestamp_extractor=event_time)
    return app.dataframe(events).group_by("key", key_serializer="str", key_deserializer="str")


def counted(app, job, tell, windows, row):
    """Count and sum of windows, each message anew, as rows in a topic."""
    out = app.topic(job["out_topic"], key_serializer="str", value_serializer=Row())
    sums = windows.agg(n=Count(), total=Sum("value")).current()
    rows = sums.apply(row, metadata=True).update(lambda _row: tell())
    return rows.to_topic(out, key=lambda pair: pair[0])


def kafka(app, job, tell):
    events = app.topic(job["topic"], value_deserializer="json")
    out = app.topic(job["out_topic"], value_serializer="json")
    read = app.dataframe(events).update(lambda _event: tell())
    kept = read.filter(lambda event: event["value"] < job["below"])
    return kept.apply(lambda event: {"key": event["key"], "value": event["value"]}).to_topic(out)


def row(window, key, _timestamp, _headers):
    return f"{window['start']},{key}", f"{window['n']},{window['total']}"


def worker(job, number, shares):
    """One process: its count is in shared memory, and a thread stops it when all counts make the whole."""
    app = Application(
        broker_address=job["bootstrap"],
        consumer_group=f"{job['out_topic']}-quix",
        auto_offset_reset="earliest",
        state_dir=f"{job['work']}/{job['out_topic']}-{number}",
        loglevel="ERROR",
        commit_interval=job.get("exactly_once", 30_000) / 1000,
        processing_guarantee="exactly-once" if "exactly_once" in job else "at-least-once",
        producer_extra_config={"linger.ms": 100, "compression.type": "lz4"},
    )

    def tell():
        shares[number] += 1

    def stop_at_end():
        while sum(shares) < job["units"]:
            time.sleep(0.05)
        app.stop()

    {"windows": windows, "sessions": sessions, "kafka": kafka}[job["job"]](app, job, tell)
    threading.Thread(target=stop_at_end, daemon=True).start()
    app.run()


def run(job):
    apart = get_context("spawn")
    shares = apart.Array("q", job["cores"], lock=False)
    processes = [apart.Process(target=worker, args=(job, n, shares)) for n in range(job["cores"])]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit(process.exitcode)


def main():
    job = given()
    run({**job, **for_warm_up(job)})
    with measured():
        run(job)


if __name__ == "__main__":
    main()
