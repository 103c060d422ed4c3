"""The jobs as Flink SQL, run by the Python of Flink's own environment: nothing of ours is importable here.

A local cluster in one JVM, as PySpark's local mode: parallelism = cores, 2 GiB of heap, two-phase
aggregation, object reuse, checkpoints every 10 s. Streaming mode on bounded input. The word count is a window
over the whole stream, so that it emits each word once, at the end, as the other contenders do. Flink reads
files in no order, so that windows over event time would take most events for late: the watermark waits for
longer than the events last, and windows fire at the end, as PySpark's do in its single batch. A join gives
its pairs at once, and keeps all events until the end.

    .venv-flink/bin/python benchmarks/peers_python/flink_sql_job.py '{"job": "wordcount", …}'
"""

from flink_tables import environment
from meter import for_warm_up, given, measured

EVENTS = """
    CREATE TABLE {name} (
      ts TIMESTAMP_LTZ(3), `key` STRING, `value` BIGINT,
      WATERMARK FOR ts AS ts - INTERVAL '1' DAY
    ) WITH (
      'connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'json',
      'json.timestamp-format.standard' = 'ISO-8601'
    )
"""
TEXT = """
    CREATE TABLE {name} (line STRING, ts AS TO_TIMESTAMP_LTZ(0, 3), WATERMARK FOR ts AS ts)
    WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'raw')
"""
SOURCES = {
    "wordcount": {"lines": TEXT},
    "windows": {"lines": EVENTS},
    "sessions": {"lines": EVENTS},
    "join": {"lines": EVENTS, "payments": EVENTS},
}
"""The tables of a job, by the argument that names their directory."""
SINKS = {
    "wordcount": "CREATE TABLE {name} (word STRING, `count` BIGINT)",
    "windows": "CREATE TABLE {name} (start_ms BIGINT, `key` STRING, n BIGINT, total BIGINT)",
    "sessions": "CREATE TABLE {name} (start_ms BIGINT, end_ms BIGINT, `key` STRING, n BIGINT, total BIGINT)",
    "join": "CREATE TABLE {name} (payment BIGINT, `key` STRING, amount BIGINT)",
}
MS = "UNIX_TIMESTAMP(CAST({0} AS STRING)) * 1000 + EXTRACT(MILLISECOND FROM {0})"
QUERIES = {
    "wordcount": """
        INSERT INTO {sink}
        SELECT word, COUNT(*) FROM TABLE(TUMBLE(TABLE {name}_words, DESCRIPTOR(ts), INTERVAL '1' DAY))
        GROUP BY window_start, window_end, word
    """,
    "windows": """
        INSERT INTO {sink}
        SELECT UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000, `key`, COUNT(*), SUM(`value`)
        FROM TABLE(TUMBLE(TABLE {name}_lines, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end, `key`
    """,
    "sessions": f"""
        INSERT INTO {{sink}}
        SELECT {MS.format("window_start")}, {MS.format("window_end")}, `key`, COUNT(*), SUM(`value`)
        FROM TABLE(SESSION(
          TABLE {{name}}_lines PARTITION BY `key`, DESCRIPTOR(ts), INTERVAL '{{gap_s}}' SECOND
        ))
        GROUP BY window_start, window_end, `key`
    """,
    "join": """
        INSERT INTO {sink}
        SELECT payment.`value`, ordered.`key`, ordered.`value`
        FROM {name}_lines AS ordered JOIN {name}_payments AS payment
        ON ordered.`key` = payment.`key` AND payment.ts
          BETWEEN ordered.ts - INTERVAL '{within_s}' SECOND AND ordered.ts + INTERVAL '{within_s}' SECOND
    """,
}
VIEWS = {
    "wordcount": """
        CREATE TEMPORARY VIEW {name}_words AS
        SELECT word, ts FROM {name}_lines CROSS JOIN UNNEST(SPLIT(line, ' ')) AS words (word) WHERE word <> ''
    """,
}


def run(tables, job, name, out):
    tables.get_config().set("execution.checkpointing.dir", f"file://{job['work']}/flink-checkpoints-{name}")
    kind, sink = job["job"], f"{name}_out"
    for argument, source in SOURCES[kind].items():
        tables.execute_sql(source.format(name=f"{name}_{argument}", path=job[argument]))
    if kind in VIEWS:
        tables.execute_sql(VIEWS[kind].format(name=name))
    target = f" WITH ('connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'csv')"
    tables.execute_sql(SINKS[kind].format(name=sink) + target)
    lengths_s = {f"{length}_s": job.get(f"{length}_ms", 0) / 1000 for length in ("gap", "within")}
    tables.execute_sql(QUERIES[kind].format(name=name, sink=sink, **lengths_s)).wait()


def main():
    job = given()
    tables = environment(job["cores"])
    run(tables, {**job, **for_warm_up(job)}, "warm", f"{job['work']}/flink-warm")
    with measured():
        run(tables, job, "job", f"{job['work']}/out")


main()
