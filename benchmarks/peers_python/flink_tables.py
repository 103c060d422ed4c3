"""Flink's tables as the benchmarks use them: a local cluster in one JVM, parallelism = cores.

With checkpoints every 10 s, two-phase aggregation and object reuse.

Called by the jobs beside it. Nothing of ours is importable here.
"""

import os

HEAP = "-Xmx2g -XX:+UseParallelGC"
# PyFlink gives jars to Java by a method that is private there.
OPENED = "--add-opens=java.base/java.net=ALL-UNNAMED"


def environment(cores, more=()):
    """An environment for streams on bounded input; `more` are further settings."""
    os.environ["FLINK_ENV_JAVA_OPTS"] = os.environ["JVM_ARGS"] = f"{HEAP} {OPENED}"
    from pyflink.table import EnvironmentSettings, TableEnvironment

    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    chosen = tables.get_config()
    for key, value in {
        "parallelism.default": str(cores),
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
        "execution.checkpointing.interval": "10 s",
        "taskmanager.memory.network.fraction": "0.2",
        **dict(more),
    }.items():
        chosen.set(key, value)
    return tables
