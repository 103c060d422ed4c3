"""The names that operators of Spark, Flink and Kafka Streams have in Drivetrain.

Data only; `spelling` builds error messages from it. The guide explains these differences in detail
(`docs/guide/coming-from.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_AGGREGATED: Final = "group_by(...) or window(...) before it"
_ROW_BY_KEY: Final = 'group_by("key")'
_LEVEL: Final = "process(..., parallelism=n) of a Task; other operators use all cores"
_SORTED: Final = 'window(...).top(n, by="column"): a stream has no end at which it could be sorted'
_LIMITED: Final = "log(limit=n), or app.preview(stream, rows=n), to look at some messages"
_OF_STREAM: Final = "drivetrain.plan(app), which shows the columns; drivetrain plan --check asks Spark"
_DEDUPLICATED: Final = 'deduplicate("key", within="1 h")'
_KEYED: Final = "process(...) of a KeyedTask"
_BATCHED: Final = "process(...) of a Task with on_batch"
_NAMED_OUTPUT: Final = 'output("name") of a Task'
_RENAMED: Final = 'rename(new="old")'
_STARTED: Final = "drivetrain.run(app) or drivetrain.start(app), for all streams of the application"

STREAM_WORDS: Final[Mapping[str, str]] = {
    "addSink": "sink(...)",
    "add_sink": "sink(...)",
    "agg": 'group_by("key").aggregate(n=agg.count())',
    "aggregate": f"aggregate(...) with {_AGGREGATED}",
    "alias": "name= of the operator",
    "asofJoin": 'join_as_of(versions, on="column")',
    "assignTimestampsAndWatermarks": 'event_time("ts", max_disorder="10 min")',
    "assign_timestamps_and_watermarks": 'event_time("ts", max_disorder="10 min")',
    "awaitTermination": _STARTED,
    "branch": "filter(condition), once for each part",
    "broadcast": 'join_as_of(rules, per="column") of the main stream',
    "cache": "cut(), which makes a channel that several operators read",
    "checkpoint": "drivetrain.savepoint, or checkpoint.mode=on; the state of a stream is kept anyway",
    "coGroup": 'join(other, on="key", within="1 h"), or union(other) before a KeyedTask',
    "coalesce": "repartition(n)",
    "cogroup": 'join(other, on="key", within="1 h"), or union(other) before a KeyedTask',
    "collect": "sink(sinks.memory(name)), or drivetrain.testing in tests",
    "columns": _OF_STREAM,
    "connect": 'join_as_of(versions, on="column"), union(other)',
    "count": f"count() with {_AGGREGATED}",
    "countWindowAll": "process(...) of a KeyedTask, which counts",
    "createOrReplaceTempView": 'sql("SELECT … FROM this")',
    "createTempView": 'sql("SELECT … FROM this")',
    "crossJoin": "join(table, on=...) with a column that is the same everywhere",
    "cube": "group_by(...), once for each set of keys",
    "distinct": 'deduplicate(within="1 h"), whose state is bounded',
    "drop_duplicates": _DEDUPLICATED,
    "dropDuplicates": _DEDUPLICATED,
    "dropDuplicatesWithinWatermark": _DEDUPLICATED,
    "dropna": 'filter("column IS NOT NULL")',
    "dtypes": _OF_STREAM,
    "exceptAll": 'join(other, on="key", within="1 h", how="left").filter("other_column IS NULL")',
    "explode": 'select(item="explode(items)")',
    "fillna": 'with_columns(column="coalesce(column, 0)")',
    "filterNot": "filter(~condition)",
    "first": "window(...).aggregate(x=agg.first(column))",
    "flatMap": "flat_map(function)",
    "flatMapValues": "flat_map(function)",
    "fold": f"fold(...) with {_AGGREGATED}",
    "foreach": "sink(sinks.batches(function))",
    "foreachBatch": "sink(sinks.batches(function))",
    "foreachPartition": "sink(sinks.batches(function))",
    "foreach_batch": "sink(sinks.batches(function))",
    "getSideOutput": _NAMED_OUTPUT,
    "get_side_output": _NAMED_OUTPUT,
    "groupBy": _ROW_BY_KEY,
    "groupByKey": _ROW_BY_KEY,
    "groupby": _ROW_BY_KEY,
    "head": _LIMITED,
    "interval_join": 'join(other, on="key", within="1 h")',
    "intervalJoin": 'join(other, on="key", within="1 h")',
    "join_asof": 'join_as_of(versions, on="column")',
    "keyBy": _ROW_BY_KEY,
    "key_by": _ROW_BY_KEY,
    "keyed_process": _KEYED,
    "limit": _LIMITED,
    "map_async": "async_map(function)",
    "mapAsync": "async_map(function)",
    "mapInArrow": _BATCHED,
    "mapInPandas": _BATCHED,
    "mapPartitions": _BATCHED,
    "mapValues": "map(function), or with_columns(column=function)",
    "max": f"max(...) with {_AGGREGATED}",
    "mean": f"mean(...) with {_AGGREGATED}",
    "merge": "union(other)",
    "min": f"min(...) with {_AGGREGATED}",
    "observe": "accumulator(...) in a function; drivetrain show has the figures of each processor",
    "orderBy": _SORTED,
    "order_by": _SORTED,
    "peek": "log()",
    "persist": "cut(), which makes a channel here",
    "pivot": 'group_by("key").aggregate(a=F.sum(F.when(col("kind") == "a", col("n"))))',
    "print": "log(), or sink(sinks.console())",
    "printSchema": _OF_STREAM,
    "rebalance": "repartition(n)",
    "reduce": f"reduce(...) with {_AGGREGATED}",
    "repartitionByRange": "repartition(n, column): messages have no ranges that stay the same",
    "rescale": "repartition(n)",
    "rollup": "group_by(...), once for each set of keys",
    "sampleBy": 'sample(fraction, "key")',
    "schema": _OF_STREAM,
    "selectExpr": "select(...), which takes SQL text",
    "selectKey": "with_columns(key=...), and group_by(key)",
    "setParallelism": _LEVEL,
    "set_parallelism": _LEVEL,
    "show": "log(), or sink(sinks.console())",
    "shuffle": "repartition(n)",
    "side_output": _NAMED_OUTPUT,
    "sinkTo": "sink(...)",
    "sort": _SORTED,
    "split": _NAMED_OUTPUT + ", or filter(condition) once for each part",
    "start": _STARTED,
    "subtract": 'join(other, on="key", within="1 h", how="left").filter("other_column IS NULL")',
    "sum": f"sum(...) with {_AGGREGATED}",
    "suppress": "window(...), whose results are emitted once, when the window has ended",
    "take": _LIMITED,
    "throttle": "run.max-batch-rows, or async_map(function, concurrency=n)",
    "to": "sink(...)",
    "toDF": _RENAMED,
    "toPandas": "app.preview(stream), or sink(sinks.memory(name))",
    "toTable": 'sink(sinks.delta("table"))',
    "top": f"top(n, by=...) with {_AGGREGATED}",
    "transform": "process(...) of a Task, or a function that takes the stream: function(stream)",
    "transformWithState": _KEYED,
    "uid": "name= of the operator",
    "unionAll": "union(other)",
    "unionByName": "union(other), which matches columns by name",
    "where": "filter(condition)",
    "windowAll": "window(windows.tumbling(...))",
    "withColumn": "with_columns(column=...)",
    "withColumns": "with_columns(column=...)",
    "withColumnRenamed": _RENAMED,
    "withColumnsRenamed": _RENAMED,
    "withWatermark": 'event_time("ts", max_disorder="10 min")',
    "with_column": "with_columns(column=...)",
    "write": "sink(...)",
    "writeStream": "sink(...)",
}
"""Names of stream operators in other systems, and what to write here."""

GROUPED_WORDS: Final[Mapping[str, str]] = {
    "agg": "aggregate(n=agg.count())",
    "allowedLateness": 'window(windows.tumbling("1 h", allowed_lateness="10 min"))',
    "allowed_lateness": 'window(windows.tumbling("1 h", allowed_lateness="10 min"))',
    "apply": "aggregate(x=Monoid), or process(...) of a KeyedTask, on the stream",
    "applyInPandas": "process(...) of a Task with on_batch, on the stream",
    "applyInPandasWithState": "process(...) of a KeyedTask, on the stream",
    "avg": 'mean("column")',
    "cogroup": 'join(other, on="key", within="1 h"), on the stream',
    "collect_set": 'aggregate(x=agg.collect_set("column"))',
    "countWindow": "process(...) of a KeyedTask, which counts, on the stream",
    "count_distinct": 'aggregate(x=agg.distinct_count("column"))',
    "count_window": "process(...) of a KeyedTask, which counts, on the stream",
    "emit": "window(...), and early of the result",
    "first": 'aggregate(x=agg.first("column"))',
    "flatMapGroupsWithState": "process(...) of a KeyedTask, on the stream",
    "last": 'aggregate(x=agg.last("column"))',
    "limit": 'top(n, by="column")',
    "mapGroups": "aggregate(x=Monoid), or process(...) of a KeyedTask, on the stream",
    "mapGroupsWithState": "process(...) of a KeyedTask, on the stream",
    "maxBy": 'top(1, by="column")',
    "max_by": 'top(1, by="column")',
    "minBy": 'top(1, by="-column")',
    "min_by": 'top(1, by="-column")',
    "pattern": 'match(patterns.step(...), ..., within="10 min")',
    "pivot": 'aggregate(a=F.sum(F.when(col("kind") == "a", col("n"))))',
    "process": "process(...) of a KeyedTask, on the stream",
    "sideOutputLateData": "aggregate(...).late",
    "side_output_late_data": "aggregate(...).late",
    "stddev": 'aggregate(x=F.stddev("column"))',
    "transformWithState": "process(...) of a KeyedTask, on the stream",
    "transformWithStateInPandas": "process(...) of a KeyedTask, on the stream",
    "trigger": "early of the result, for results so far",
    "windowedBy": "window(windows.tumbling(...))",
}
"""Names of methods of a grouped stream in other systems, and what to write here."""

APPLICATION_WORDS: Final[Mapping[str, str]] = {
    "addSource": "read(source)",
    "add_source": "read(source)",
    "awaitTermination": _STARTED,
    "execute": _STARTED,
    "fromSource": "read(source)",
    "from_collection": "read(sources.items(rows, schema=...))",
    "from_source": "read(source)",
    "readStream": "read(source)",
    "read_stream": "read(source)",
    "run": _STARTED,
    "source": "read(source)",
    "start": _STARTED,
    "stream": "read(source)",
}
"""Names of methods of an application in other systems, and what to write here."""

WINDOW_WORDS: Final[Mapping[str, str]] = {
    "EventTimeSessionWindows": 'session("30 min")',
    "SlidingEventTimeWindows": 'sliding("1 h", "10 min")',
    "TumblingEventTimeWindows": 'tumbling("1 h")',
    "count": "process(...) of a KeyedTask, which counts",
    "fixed": 'tumbling("1 h")',
    "global_": "everything()",
    "hop": 'sliding("1 h", "10 min")',
    "hopping": 'sliding("1 h", "10 min")',
    "sessions": 'session("30 min")',
    "session_window": 'session("30 min")',
    "slide": 'sliding("1 h", "10 min")',
    "tumble": 'tumbling("1 h")',
    "window": 'tumbling("1 h")',
}
"""Names of windows in other systems, and what to write here."""

SOURCE_WORDS: Final[Mapping[str, str]] = {
    "avro": 'kafka(..., format="avro", schema=...) for Avro in Kafka',
    "collection": "items(rows, schema=...)",
    "delta_table": "delta(path)",
    "file": "text, csv, json or parquet",
    "files": "text, csv, json or parquet",
    "from_collection": "items(rows, schema=...)",
    "jsonl": "json(...), whose files have an object in each line",
    "memory": "items(rows, schema=...)",
    "rate": "generate(rate_per_s=100)",
    "table": "delta(path), or app.table(source) for a join",
}
"""Names of sources in other systems, and what to write here."""

SINK_WORDS: Final[Mapping[str, str]] = {
    "collect": "memory(name)",
    "delta_table": "delta(path)",
    "discard": "none()",
    "foreach": "batches(function)",
    "foreachBatch": "batches(function)",
    "foreach_batch": "batches(function)",
    "jdbc": "postgresql(...), mysql(...) or sqlite(...)",
    "jsonl": "json(...), whose files have an object in each line",
    "mariadb": "mysql(...), for both servers",
    "noop": "none()",
    "postgres": "postgresql(...)",
    "print": "console()",
    "show": "console()",
    "stdout": "console()",
    "valkey": "redis(...), for both servers",
}
"""Names of sinks in other systems, and what to write here."""

AGGREGATION_WORDS: Final[Mapping[str, str]] = {
    "approx_count_distinct": 'distinct_count("column")',
    "average": 'mean("column")',
    "avg": 'mean("column")',
    "collect_list": 'F.collect_list("column"), whose order is that of arrival, or a Monoid',
    "countDistinct": 'distinct_count("column")',
    "count_distinct": 'distinct_count("column")',
    "std": 'F.stddev("column")',
    "stddev": 'F.stddev("column")',
}
"""Names of aggregations in other systems, and what to write here."""

PARTITIONER_WORDS: Final[Mapping[str, str]] = {
    "forward": "colocation()",
    "key_by": 'hash("key")',
    "random": "shuffle()",
    "rebalance": "shuffle()",
    "round_robin": "shuffle()",
}
"""Names of partitioners in other systems, and what to write here."""
