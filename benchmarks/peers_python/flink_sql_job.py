"""The jobs as Flink SQL, run by the Python of Flink's own environment: nothing of ours is importable here.

A local cluster in one JVM, as PySpark's local mode: parallelism = cores, 2 GiB of heap, two-phase
aggregation, object reuse, checkpoints every 10 s. Streaming mode on bounded input. The word count is a window
over the whole stream, so that it emits each word once, at the end, as the other contenders do. Flink reads
files in no order, so that windows over event time would take most events for late: the watermark waits for
longer than the events last, and windows fire at the end, as PySpark's do in its single batch.

    .venv-flink/bin/python benchmarks/peers_python/flink_sql_job.py '{"job": "wordcount", …}'
"""

from flink_tables import environment
from meter import given, measured

SOURCES = {
    "wordcount": """
        CREATE TABLE {name} (line STRING, ts AS TO_TIMESTAMP_LTZ(0, 3), WATERMARK FOR ts AS ts)
        WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'raw')
    """,
    "windows": """
        CREATE TABLE {name} (
          ts TIMESTAMP_LTZ(3), `key` STRING, `value` BIGINT,
          WATERMARK FOR ts AS ts - INTERVAL '1' DAY
        ) WITH (
          'connector' = 'filesystem', 'path' = '{path}', 'format' = 'json',
          'json.timestamp-format.standard' = 'ISO-8601'
        )
    """,
}
SINKS = {
    "wordcount": "CREATE TABLE {name} (word STRING, `count` BIGINT)",
    "windows": "CREATE TABLE {name} (start_ms BIGINT, `key` STRING, n BIGINT, total BIGINT)",
}
QUERIES = {
    "wordcount": """
        INSERT INTO {sink}
        SELECT word, COUNT(*) FROM TABLE(TUMBLE(TABLE {source}_words, DESCRIPTOR(ts), INTERVAL '1' DAY))
        GROUP BY window_start, window_end, word
    """,
    "windows": """
        INSERT INTO {sink}
        SELECT UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000, `key`, COUNT(*), SUM(`value`)
        FROM TABLE(TUMBLE(TABLE {source}, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end, `key`
    """,
}
VIEWS = {
    "wordcount": """
        CREATE TEMPORARY VIEW {name}_words AS
        SELECT word, ts FROM {name} CROSS JOIN UNNEST(SPLIT(line, ' ')) AS words (word) WHERE word <> ''
    """,
}


def run(tables, job, name, lines, out, work):
    source, sink = f"{name}_lines", f"{name}_out"
    tables.get_config().set("execution.checkpointing.dir", f"file://{work}/flink-checkpoints-{name}")
    tables.execute_sql(SOURCES[job].format(name=source, path=f"file://{lines}"))
    if job in VIEWS:
        tables.execute_sql(VIEWS[job].format(name=source))
    target = f" WITH ('connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'csv')"
    tables.execute_sql(SINKS[job].format(name=sink) + target)
    tables.execute_sql(QUERIES[job].format(source=source, sink=sink)).wait()


def main():
    job = given()
    tables = environment(job["cores"])
    work = job["work"]
    run(tables, job["job"], "warm", job["warm_lines"], f"{work}/flink-warm", work)
    with measured():
        run(tables, job["job"], "job", job["lines"], f"{work}/out", work)


main()
