"""From a topic to a topic as Flink SQL, run by the Python of Flink's own environment.

At least once by default, or exactly once: a transaction for each checkpoint, every 10 s and at the end. The
producer sends large compressed batches. The end of the input is that of the topic at the start.

    .venv-flink/bin/python benchmarks/peers_python/flink_kafka_job.py '{"topic": "in", …}'
"""

from flink_tables import environment
from meter import for_warm_up, given, measured

SENDING = {
    "properties.linger.ms": "100",
    "properties.batch.size": str(256 << 10),
    "properties.compression.type": "lz4",
    "properties.transaction.timeout.ms": "300000",
}


def table(tables, name, job, topic, **more):
    options = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": job["bootstrap"],
        "format": "json",
        **more,
    }
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    tables.execute_sql(f"CREATE TABLE {name} (`key` STRING, `value` BIGINT) WITH ({listed})")


def run(tables, job, name):
    tables.get_config().set("execution.checkpointing.dir", f"file://{job['work']}/flink-checkpoints-{name}")
    ends = {"scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset"}
    table(tables, f"{name}_in", job, job["topic"], **ends)
    guarantee = {
        "sink.delivery-guarantee": job["guarantee"],
        "sink.transactional-id-prefix": job["out_topic"],
    }
    table(tables, f"{name}_out", job, job["out_topic"], **SENDING, **guarantee)
    kept = f"SELECT `key`, `value` FROM {name}_in WHERE `value` < {job['below']}"
    tables.execute_sql(f"INSERT INTO {name}_out {kept}").wait()


def main():
    job = given()
    tables = environment(job["cores"], {"pipeline.jars": job["jars"]})
    run(tables, {**job, **for_warm_up(job)}, "warm")
    with measured():
        run(tables, job, "job")


main()
