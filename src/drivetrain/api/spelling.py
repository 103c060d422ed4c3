"""Unknown names: the error suggests what to write instead, also for the names used by PySpark and Flink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from drivetrain.config.nearest import nearest

STREAM_WORDS: Final[Mapping[str, str]] = {
    "addSink": "sink(...)",
    "agg": 'group_by("key").aggregate(n=agg.count())',
    "alias": "name= of the operator",
    "distinct": 'deduplicate(within="1 h"), whose state is bounded',
    "drop_duplicates": 'deduplicate("key", within="1 h")',
    "dropDuplicates": 'deduplicate("key", within="1 h")',
    "dropDuplicatesWithinWatermark": 'deduplicate("key", within="1 h")',
    "flatMap": "flat_map(function)",
    "foreachBatch": "sink(sinks.batches(function))",
    "getSideOutput": 'output("name") of a Task',
    "get_side_output": 'output("name") of a Task',
    "groupBy": 'group_by("key")',
    "groupby": 'group_by("key")',
    "keyBy": 'group_by("key")',
    "key_by": 'group_by("key")',
    "map_async": "async_map(function)",
    "mapAsync": "async_map(function)",
    "asofJoin": 'join_as_of(versions, on="column")',
    "broadcast": 'join_as_of(rules, per="column") of the main stream',
    "connect": 'join_as_of(versions, on="column"), union(other)',
    "createOrReplaceTempView": 'sql("SELECT … FROM this")',
    "join_asof": 'join_as_of(versions, on="column")',
    "keyed_process": "process(...) of a KeyedTask",
    "mapInArrow": "process(...) of a Task with on_batch",
    "mapInPandas": "process(...) of a Task with on_batch",
    "merge": "union(other)",
    "persist": "cut(), which makes a channel here",
    "selectExpr": "select(...), which takes SQL text",
    "side_output": 'output("name") of a Task',
    "sampleBy": 'sample(fraction, "key")',
    "show": "log(), or sink(sinks.console())",
    "sinkTo": "sink(...)",
    "transformWithState": "process(...) of a KeyedTask",
    "unionAll": "union(other)",
    "unionByName": "union(other), which matches columns by name",
    "where": "filter(condition)",
    "withColumn": "with_columns(column=...)",
    "withColumns": "with_columns(column=...)",
    "withColumnRenamed": 'rename(new="old")',
    "withColumnsRenamed": 'rename(new="old")',
    "withWatermark": 'event_time("ts", max_disorder="10 min")',
    "write": "sink(...)",
    "writeStream": "sink(...)",
}
"""Other systems' names of operators of `Stream`, and the names here."""
GROUPED_WORDS: Final[Mapping[str, str]] = {
    "pattern": 'match(patterns.step(...), ..., within="10 min")',
    "agg": "aggregate(n=agg.count())",
    "applyInPandas": "process(...) of a Task with on_batch, on the stream",
    "applyInPandasWithState": "process(...) of a PersistentTask, on the stream",
    "avg": 'mean("column")',
    "first": 'aggregate(x=agg.first("column"))',
    "limit": 'top(n, by="column")',
    "last": 'aggregate(x=agg.last("column"))',
    "transformWithState": "process(...) of a PersistentTask, on the stream",
    "transformWithStateInPandas": "process(...) of a PersistentTask, on the stream",
}
"""Other systems' names of methods of `Grouped`, and the names here."""


def unknown_name(owner: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that `owner` does not have; names the nearest one that it has.

    >>> str(unknown_name("a shape", "circel", ["circle", "square"]))
    "a shape has no 'circel': did you mean 'circle'?"
    """
    near = nearest(name, sorted(known))
    hint = "" if near is None else f": did you mean {near!r}?"
    return AttributeError(f"{owner} has no {name!r}{hint}")


def other_word(owner: object, name: str, words: Mapping[str, str]) -> AttributeError:
    """The error for a method that `owner` does not have, with our name for it if it is known."""
    kind = type(owner).__name__
    if name in words:
        return AttributeError(f"{kind} has no {name!r}: write {words[name]}")
    return unknown_name(kind, name, [known for known in dir(type(owner)) if not known.startswith("_")])
