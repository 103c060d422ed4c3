"""The jobs in Pathway: a worker thread per core (its engine is Rust), and static mode, which ends.

.venv-peers/pathway/bin/python benchmarks/peers_python/pathway_job.py '{"job": "wordcount", …}'
"""

import csv
import os
from datetime import timedelta
from pathlib import Path

from meter import given, measured

JOB = given()
os.environ["PATHWAY_THREADS"] = str(JOB["cores"])

import pathway as pw  # noqa: E402 - it reads the number of threads
from pathway.internals.parse_graph import G  # noqa: E402 - the graph is global, and run twice here

BATCH = 10_000


class Event(pw.Schema):
    ts: str
    key: str
    value: int


@pw.udf(max_batch_size=BATCH, deterministic=True)
def split(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def wordcount(lines):
    text = pw.io.plaintext.read(lines, mode="static")
    words = text.select(word=split(pw.this.data)).flatten(pw.this.word)
    return words.groupby(pw.this.word).reduce(pw.this.word, count=pw.reducers.count())


def windows(lines):
    events = pw.io.jsonlines.read(lines, schema=Event, mode="static")
    timed = events.with_columns(ts=pw.this.ts.dt.strptime("%Y-%m-%dT%H:%M:%S.%fZ"))
    tens = pw.temporal.tumbling(duration=timedelta(seconds=10))
    return timed.windowby(pw.this.ts, window=tens, instance=pw.this.key).reduce(
        start_ms=pw.this._pw_window_start.dt.timestamp(unit="ms"),
        key=pw.this._pw_instance,
        n=pw.reducers.count(),
        total=pw.reducers.sum(pw.this.value),
    )


def run(lines, out):
    G.clear()
    result = {"wordcount": wordcount, "windows": windows}[JOB["job"]](lines)
    pw.io.csv.write(result, out)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


def without_heading(raw, out, numbers):
    """What the check reads: no heading, none of Pathway's own columns, and whole numbers."""
    with raw.open(newline="") as given_rows, out.open("w", newline="") as made:
        rows = csv.writer(made)
        for row in csv.DictReader(given_rows):
            kept = [int(float(value)) if name in numbers else value for name, value in list(row.items())[:-2]]
            rows.writerow(kept)


def main():
    work = Path(JOB["work"])
    (work / "out").mkdir()
    run(JOB["warm_lines"], str(work / "warm.csv"))
    with measured():
        run(JOB["lines"], str(work / "raw.csv"))
    without_heading(work / "raw.csv", work / "out" / "rows.csv", ("start_ms",))


main()
