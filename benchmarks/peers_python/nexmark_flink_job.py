"""A query of Nexmark as Flink SQL, run by the Python of Flink's own environment, which has nothing of ours.

The settings are those of `flink_tables`, and those of Flink's own Nexmark: RocksDB, mini-batches of at most
2 s, distinct aggregates split.

    .venv-flink/bin/python benchmarks/peers_python/nexmark_flink_job.py '{"statement": "SELECT …", …}'
"""

from flink_tables import environment
from meter import given, measured

COLUMNS = {
    "persons": "id BIGINT, name STRING, city STRING, state STRING, date_time TIMESTAMP_LTZ(6)",
    "auctions": "id BIGINT, seller BIGINT, category BIGINT, initial_bid BIGINT, date_time TIMESTAMP_LTZ(6), "
    "expires TIMESTAMP_LTZ(6)",
    "bids": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, date_time TIMESTAMP_LTZ(6), "
    "extra STRING",
}


SETTINGS = {
    "table.optimizer.distinct-agg.split.enabled": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "state.backend.type": "rocksdb",
    "taskmanager.memory.managed.size": "512m",
}


def run(tables, job, name, data, out):
    tables.get_config().set("execution.checkpointing.dir", f"file://{job['work']}/checkpoints-{name}")
    for table, columns in COLUMNS.items():
        tables.execute_sql(f"DROP TABLE IF EXISTS {table}")
        tables.execute_sql(
            f"CREATE TABLE {table} ({columns}, ts AS CAST(date_time AS TIMESTAMP_LTZ(3)), "
            "WATERMARK FOR ts AS ts - INTERVAL '1' DAY) WITH ('connector' = 'filesystem', "
            f"'path' = 'file://{data}/{table}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true')"
        )
    schema = tables.sql_query(job["statement"])._j_table.getResolvedSchema()
    columns = ", ".join(
        f"`{column.getName()}` {column.getDataType().getLogicalType().copy(True).asSerializableString()}"
        for column in schema.getColumns()
    )
    form = (
        "'format' = 'debezium-json', 'debezium-json.timestamp-format.standard' = 'ISO-8601'"
        if job["changes"]
        else "'format' = 'parquet', 'parquet.utc-timezone' = 'true', 'parquet.write.int64.timestamp' = 'true'"
    )
    tables.execute_sql(
        f"CREATE TABLE {name}_out ({columns}) "
        f"WITH ('connector' = 'filesystem', 'path' = 'file://{out}', {form})"
    )
    tables.execute_sql(f"INSERT INTO {name}_out {job['statement']}").wait()


def main():
    job = given()
    tables = environment(job["cores"], {"pipeline.jars": ";".join(job["jars"]), **SETTINGS})
    work = job["work"]
    run(tables, job, "warm", job["warm"], f"{work}/flink-warm")
    with measured():
        run(tables, job, "job", job["measured"], f"{work}/flink-out")


main()
