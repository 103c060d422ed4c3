"""A query of Nexmark as Flink SQL, run by the Python of Flink's own environment, which has nothing of ours.

As `flink_sql_job`: a local cluster in one JVM, parallelism = cores, 2 GiB of heap, checkpoints every 10 s;
and the settings of Flink's own Nexmark: RocksDB, mini-batches of at most 2 s, distinct aggregates split.

    .venv-flink/bin/python benchmarks/nexmark_flink_job.py '{"statement": "SELECT …", "measured": …, …}'
"""

import json
import os
import sys
import time

# PyFlink gives jars to Java by a method that is private there.
HEAP = "-Xmx2g -XX:+UseParallelGC --add-opens=java.base/java.net=ALL-UNNAMED"

COLUMNS = {
    "persons": "id BIGINT, name STRING, city STRING, state STRING, date_time TIMESTAMP_LTZ(6)",
    "auctions": "id BIGINT, seller BIGINT, category BIGINT, initial_bid BIGINT, date_time TIMESTAMP_LTZ(6), "
    "expires TIMESTAMP_LTZ(6)",
    "bids": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, date_time TIMESTAMP_LTZ(6), "
    "extra STRING",
}


def environment(given):
    from pyflink.table import EnvironmentSettings, TableEnvironment

    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    chosen = tables.get_config()
    for key, value in {
        "pipeline.jars": ";".join(given["jars"]),
        "parallelism.default": str(given["cores"]),
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
        "table.optimizer.distinct-agg.split.enabled": "true",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "2 s",
        "table.exec.mini-batch.size": "50000",
        "execution.checkpointing.interval": "10 s",
        "state.backend.type": "rocksdb",
        "taskmanager.memory.network.fraction": "0.2",
        "taskmanager.memory.managed.size": "512m",
    }.items():
        chosen.set(key, value)
    return tables


def run(tables, given, name, data, out):
    tables.get_config().set("execution.checkpointing.dir", f"file://{given['work']}/checkpoints-{name}")
    for table, columns in COLUMNS.items():
        tables.execute_sql(f"DROP TABLE IF EXISTS {table}")
        tables.execute_sql(
            f"CREATE TABLE {table} ({columns}, ts AS CAST(date_time AS TIMESTAMP_LTZ(3)), "
            "WATERMARK FOR ts AS ts - INTERVAL '1' DAY) WITH ('connector' = 'filesystem', "
            f"'path' = 'file://{data}/{table}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true')"
        )
    schema = tables.sql_query(given["statement"])._j_table.getResolvedSchema()
    columns = ", ".join(
        f"`{column.getName()}` {column.getDataType().getLogicalType().copy(True).asSerializableString()}"
        for column in schema.getColumns()
    )
    form = (
        "'format' = 'debezium-json', 'debezium-json.timestamp-format.standard' = 'ISO-8601'"
        if given["changes"]
        else "'format' = 'parquet', 'parquet.utc-timezone' = 'true', 'parquet.write.int64.timestamp' = 'true'"
    )
    tables.execute_sql(
        f"CREATE TABLE {name}_out ({columns}) "
        f"WITH ('connector' = 'filesystem', 'path' = 'file://{out}', {form})"
    )
    began_s, before_s = time.perf_counter(), cpu_s(os.getpid())
    tables.execute_sql(f"INSERT INTO {name}_out {given['statement']}").wait()
    return {"seconds": time.perf_counter() - began_s, "cpu_s": cpu_s(os.getpid()) - before_s}


def cpu_s(pid):
    """CPU seconds of a process and its descendants so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(") ")[2].split()
    total = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                total += sum(cpu_s(int(child)) for child in file.read().split())
        except FileNotFoundError:  # the thread has ended, or a child
            continue
    return total


def main():
    given = json.loads(sys.argv[1])
    os.environ["FLINK_ENV_JAVA_OPTS"] = HEAP
    os.environ["JVM_ARGS"] = HEAP
    began_s = time.perf_counter()
    tables = environment(given)
    start_s = time.perf_counter() - began_s
    work = given["work"]
    run(tables, given, "warm", given["warm"], f"{work}/flink-warm")
    figures = run(tables, given, "job", given["measured"], f"{work}/flink-out")
    print("\n" + json.dumps({**figures, "start_s": start_s}), flush=True)


main()
