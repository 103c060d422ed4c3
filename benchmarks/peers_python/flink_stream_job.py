"""The jobs in Flink's DataStream API for Python: a local cluster in one JVM, and functions in Python.

Python runs in threads of the JVM's task slots (`python.execution-mode: thread`), which Flink recommends for
throughput, in bundles of 100,000 elements; parallelism = cores. Batch mode, in which a key's results are
emitted once, at the end, as the other contenders do.

    .venv-flink/bin/python benchmarks/peers_python/flink_stream_job.py '{"job": "wordcount", …}'
"""

import json
import os
import sys
import sysconfig
from datetime import datetime

from meter import given, measured
from pyflink.common import Configuration, Encoder, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from pyflink.datastream.functions import ProcessWindowFunction
from pyflink.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows

OPENED = ("java.base/java.util", "java.base/java.lang", "java.base/java.net", "java.base/java.time")
JAVA = " ".join(["-Xmx2g -XX:+UseParallelGC", *(f"--add-opens={part}=ALL-UNNAMED" for part in OPENED)])
TEXT = Types.STRING()
WORD = Types.TUPLE([TEXT, Types.LONG()])
SUMS = Types.TUPLE([TEXT, Types.LONG(), Types.LONG(), Types.LONG()])


def environment(cores):
    settings = Configuration()
    settings.set_string("python.executable", sys.executable)
    settings.set_string("python.execution-mode", "thread")
    settings.set_string("python.fn-execution.bundle.size", "100000")
    settings.set_string("pipeline.object-reuse", "true")
    made = StreamExecutionEnvironment.get_execution_environment(settings)
    made.set_parallelism(cores)
    made.set_runtime_mode(RuntimeExecutionMode.BATCH)
    return made


def read(made, directory):
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"file://{directory}")
    return made.from_source(lines.build(), WatermarkStrategy.no_watermarks(), "lines")


def wordcount(lines, _job):
    words = lines.flat_map(lambda line: [(word, 1) for word in line.split()], WORD)
    counts = words.key_by(lambda pair: pair[0], TEXT).reduce(lambda a, b: (a[0], a[1] + b[1]))
    return counts.map(lambda pair: f"{pair[0]},{pair[1]}", TEXT)


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[3]


class Row(ProcessWindowFunction):
    """The row of a window: its start, for sessions its end as well, and its key, count and sum."""

    def __init__(self, with_end):
        self.with_end = with_end

    def process(self, key, context, elements):
        window = context.window()
        bounds = f"{window.start},{window.end}" if self.with_end else window.start
        for _key, n, total, _ts_ms in elements:
            yield f"{bounds},{key},{n},{total}"


def windows(lines, _job):
    tens = by_key(lines).window(TumblingEventTimeWindows.of(Time.seconds(10)))
    return tens.reduce(added, Row(with_end=False), output_type=TEXT)


def sessions(lines, job):
    gaps = EventTimeSessionWindows.with_gap(Time.milliseconds(job["gap_ms"]))
    return by_key(lines).window(gaps).reduce(added, Row(with_end=True), output_type=TEXT)


def by_key(lines):
    events = lines.map(parsed, SUMS).assign_timestamps_and_watermarks(
        WatermarkStrategy.no_watermarks().with_timestamp_assigner(EventTime())
    )
    return events.key_by(lambda one: one[0], TEXT)


def added(one, other):
    return one[0], one[1] + other[1], one[2] + other[2], one[3]


def parsed(line):
    event = json.loads(line)
    ts_ms = round(datetime.fromisoformat(event["ts"]).timestamp() * 1000)
    return event["key"], 1, event["value"], ts_ms


def run(job, directory, out):
    made = environment(job["cores"])
    jobs = {"wordcount": wordcount, "windows": windows, "sessions": sessions}
    rows = jobs[job["job"]](read(made, directory), job)
    rows.sink_to(FileSink.for_row_format(f"file://{out}", Encoder.simple_string_encoder()).build())
    made.execute(job["job"])


def main():
    job = given()
    os.environ["FLINK_ENV_JAVA_OPTS"] = JAVA
    os.environ["JVM_ARGS"] = JAVA
    # The interpreter within the JVM does not know that it belongs to an environment.
    os.environ["PYTHONPATH"] = sysconfig.get_path("purelib")
    run(job, job["warm_lines"], f"{job['work']}/warm-out")
    with measured():
        run(job, job["lines"], f"{job['work']}/out")


main()
