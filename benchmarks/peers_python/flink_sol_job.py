"""SOL as Flink SQL, run by the Python of Flink's own environment: nothing of ours is importable here.

A generator makes ids and 100 constant bytes; a hash partition by the id's bucket brings each message, whole,
to an aggregate that counts it and looks at its payload, so that the planner cannot leave the payload out.
Two-phase aggregation, which would count before the partition, is off. The aggregate is a window over the
whole stream, so that it emits its counts once, at the end.

    .venv-flink/bin/python benchmarks/peers_python/flink_sol_job.py '{"messages": 1000000, …}'
"""

from flink_tables import environment
from meter import for_warm_up, given, measured

BUCKETS = 64
SOURCE = """
    CREATE TABLE {name} (id BIGINT, ts AS TO_TIMESTAMP_LTZ(0, 3), WATERMARK FOR ts AS ts) WITH (
      'connector' = 'datagen', 'rows-per-second' = '2147483647',
      'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '{messages}'
    )
"""
MESSAGES = """
    CREATE TEMPORARY VIEW {name}_messages AS
    SELECT MOD(id, {buckets}) AS bucket, REPEAT('x', 100) AS payload, ts FROM {name}
"""
SINK = """
    CREATE TABLE {name}_out (messages BIGINT, payload_bytes INT)
    WITH ('connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'csv')
"""
COUNT = """
    INSERT INTO {name}_out SELECT COUNT(*), CHAR_LENGTH(MAX(payload))
    FROM TABLE(TUMBLE(TABLE {name}_messages, DESCRIPTOR(ts), INTERVAL '1' DAY))
    GROUP BY window_start, window_end, bucket
"""


def run(tables, job, name, out):
    tables.get_config().set("execution.checkpointing.dir", f"file://{job['work']}/flink-checkpoints-{name}")
    words = {"name": name, "messages": job["messages"], "buckets": BUCKETS, "out": out}
    for statement in (SOURCE, MESSAGES, SINK):
        tables.execute_sql(statement.format(**words))
    plan = tables.explain_sql(COUNT.format(**words))
    if "LocalWindowAggregate" in plan or "Exchange(distribution=[hash[bucket]])" not in plan:
        raise SystemExit(f"not every message goes through the hash partition:\n{plan}")
    tables.execute_sql(COUNT.format(**words)).wait()


def main():
    job = given()
    tables = environment(job["cores"], {"table.optimizer.agg-phase-strategy": "ONE_PHASE"})
    run(tables, {**job, **for_warm_up(job)}, "warm", f"{job['work']}/flink-warm")
    with measured():
        run(tables, job, "job", f"{job['work']}/counted")


main()
