"""The jobs in Pathway: a worker thread per core (its engine is Rust), and static mode, which ends.

.venv-peers/pathway/bin/python benchmarks/peers_python/pathway_job.py '{"job": "wordcount", …}'
"""

import csv
import os
from datetime import timedelta
from pathlib import Path

from meter import for_warm_up, given, measured

JOB = given()
os.environ["PATHWAY_THREADS"] = str(JOB["cores"])

import pathway as pw  # noqa: E402 - it reads the number of threads
from pathway.internals.parse_graph import G  # noqa: E402 - the graph is global, and run twice here

BATCH = 10_000


class Event(pw.Schema):
    ts: str
    key: str
    value: int


class Fields(pw.Schema):
    """Those of an event that are passed on from topic to topic."""

    key: str
    value: int


@pw.udf(max_batch_size=BATCH, deterministic=True)
def split(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def wordcount(job):
    text = pw.io.plaintext.read(job["lines"], mode="static")
    words = text.select(word=split(pw.this.data)).flatten(pw.this.word)
    return words.groupby(pw.this.word).reduce(pw.this.word, count=pw.reducers.count())


def timed(lines):
    events = pw.io.jsonlines.read(lines, schema=Event, mode="static")
    return events.with_columns(ts=pw.this.ts.dt.strptime("%Y-%m-%dT%H:%M:%S.%fZ"))


def windows(job):
    tens = pw.temporal.tumbling(duration=timedelta(seconds=10))
    return (
        timed(job["lines"])
        .windowby(pw.this.ts, window=tens, instance=pw.this.key)
        .reduce(
            start_ms=pw.this._pw_window_start.dt.timestamp(unit="ms"),
            key=pw.this._pw_instance,
            n=pw.reducers.count(),
            total=pw.reducers.sum(pw.this.value),
        )
    )


def sessions(job):
    gap = timedelta(milliseconds=job["gap_ms"])
    session = pw.temporal.session(max_gap=gap)
    return (
        timed(job["lines"])
        .windowby(pw.this.ts, window=session, instance=pw.this.key)
        .reduce(
            start_ms=pw.this._pw_window_start.dt.timestamp(unit="ms"),
            end_ms=(pw.this._pw_window_end + gap).dt.timestamp(unit="ms"),
            key=pw.this._pw_instance,
            n=pw.reducers.count(),
            total=pw.reducers.sum(pw.this.value),
        )
    )


def join(job):
    ordered, paid = timed(job["lines"]), timed(job["payments"])
    within = timedelta(milliseconds=job["within_ms"])
    near = pw.temporal.interval(-within, within)
    pairs = ordered.interval_join(paid, ordered.ts, paid.ts, near, ordered.key == paid.key)
    return pairs.select(payment=paid.value, key=ordered.key, amount=ordered.value)


def kafka(job):
    broker = {"bootstrap.servers": job["bootstrap"]}
    reading = {**broker, "group.id": job["out_topic"], "auto.offset.reset": "earliest"}
    events = pw.io.kafka.read(reading, job["topic"], schema=Fields, format="json", mode="static")
    kept = events.filter(pw.this.value < job["below"])
    sending = {**broker, "linger.ms": "100", "compression.type": "lz4"}
    pw.io.kafka.write(kept, sending, job["out_topic"], format="json")


def run(job, out):
    G.clear()
    result = JOBS[job["job"]](job)
    if result is not None:
        pw.io.csv.write(result, out)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


JOBS = {"wordcount": wordcount, "windows": windows, "sessions": sessions, "join": join, "kafka": kafka}


def without_heading(raw, out, numbers):
    """What the check reads: no heading, none of Pathway's own columns, and whole numbers."""
    with raw.open(newline="") as given_rows, out.open("w", newline="") as made:
        rows = csv.writer(made)
        for row in csv.DictReader(given_rows):
            kept = [
                round(float(value)) if name in numbers else value for name, value in list(row.items())[:-2]
            ]
            rows.writerow(kept)


def main():
    work = Path(JOB["work"])
    run({**JOB, **for_warm_up(JOB)}, str(work / "warm.csv"))
    with measured():
        run(JOB, str(work / "raw.csv"))
    if (work / "raw.csv").exists():
        (work / "out").mkdir()
        without_heading(work / "raw.csv", work / "out" / "rows.csv", ("start_ms", "end_ms"))


main()
