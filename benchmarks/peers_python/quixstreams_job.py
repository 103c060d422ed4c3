"""The jobs in Quix Streams, from a topic to a topic: a process per core in one consumer group.

State is in RocksDB with changelog topics, and every update of a window is sent, because those that are open
at the end of the input would not be sent otherwise. A stream never ends: a job is over when all processes
together have counted all messages.

    .venv-peers/quixstreams/bin/python benchmarks/peers_python/quixstreams_job.py '{"job": "windows", …}'
"""

import threading
import time
from datetime import datetime
from multiprocessing import get_context

from meter import given, measured
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
    events = app.topic(job["topic"], value_deserializer="json", timestamp_extractor=event_time)
    out = app.topic(job["out_topic"], key_serializer="str", value_serializer=Row())
    frame = app.dataframe(events).group_by("key", key_serializer="str", key_deserializer="str")
    # The partitions are read side by side: the grace period is longer than the events last.
    sums = frame.tumbling_window(10_000, grace_ms=DAY_MS).agg(n=Count(), total=Sum("value")).current()
    rows = sums.apply(row, metadata=True).update(lambda _row: tell())
    return rows.to_topic(out, key=lambda pair: pair[0])


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
        commit_interval=30.0,
        producer_extra_config={"linger.ms": 100, "compression.type": "lz4"},
    )

    def tell():
        shares[number] += 1

    def stop_at_end():
        while sum(shares) < job["units"]:
            time.sleep(0.05)
        app.stop()

    windows(app, job, tell)
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
    warm = {key.removeprefix("warm_"): value for key, value in job.items() if key.startswith("warm_")}
    run({**job, **warm})
    with measured():
        run(job)


if __name__ == "__main__":
    main()
