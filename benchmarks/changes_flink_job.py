"""A statement of Flink SQL that is stopped with a savepoint and started anew, run by Flink's own Python.

Prints each row, `stopping` before each stop, and `started` when the changed statement runs. The session is
warm in the sense of Flink's local mode: one Java process, and a small cluster in it for each statement.

    .venv-flink/bin/python benchmarks/changes_flink_job.py '{"rate_per_s": 1000, "changes": 7, "work": "/x"}'
"""

import json
import sys
import time

SETTLE_S = 5


def insert(tables, version, savepoint):
    if savepoint is not None:
        tables.get_config().set("execution.state-recovery.path", savepoint)
        tables.get_config().set("execution.state-recovery.ignore-unclaimed-state", "true")
    return tables.execute_sql(
        f"INSERT INTO printed SELECT n FROM numbers WHERE n IS NOT NULL OR n > {version}"
    ).get_job_client()


def main():
    from pyflink.java_gateway import get_gateway
    from pyflink.table import EnvironmentSettings, TableEnvironment

    given = json.loads(sys.argv[1])
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "2")
    tables.get_config().set("execution.checkpointing.interval", "10 s")
    tables.get_config().set("execution.checkpointing.dir", f"file://{given['work']}/checkpoints")
    tables.execute_sql(
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', "
        f"'rows-per-second' = '{given['rate_per_s']}')"
    )
    tables.execute_sql("CREATE TABLE printed (n BIGINT) WITH ('connector' = 'print')")
    canonical = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL
    job = insert(tables, 1, None)
    for version in range(2, given["changes"] + 2):
        time.sleep(SETTLE_S)
        print("stopping", flush=True)
        place = f"file://{given['work']}/savepoints"
        # PyFlink's own method lacks the format, without which Flink 2 has no such method.
        savepoint = job._j_job_client.stopWithSavepoint(False, place, canonical).get()
        job = insert(tables, version, savepoint)
        while job.get_job_status().result().name != "RUNNING":
            time.sleep(0.01)
        print("started", flush=True)
    time.sleep(SETTLE_S)
    job.cancel().result()


main()
