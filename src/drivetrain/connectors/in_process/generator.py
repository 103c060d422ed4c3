"""The generator: rows generated natively, the same on every run.

The problem: Spark's `rate` source depends on the wall clock, so a replayed or repeated run has other
rows; `rate-micro-batch` does not, but has no end and no rate.

The design: a Python data source delivers *ranges* of ids, a few rows per task, and Spark's
generated code makes rows of them (`explode(sequence(lo, hi - 1))`): about as fast as Spark's own
source, and 1.4 times as fast as sending every id through Arrow. Everything else is an expression over `id`.

Invariants:

1. The row `id` is the same on every run, in every batch, at every rate.
2. Ids are dense, start at 0, and event time grows with them.
3. With `rate_per_s`, row n is not available earlier than n / rate after the start (of this run).

Because of the ranges, Spark's own `numInputRows` counts ranges; `position` counts rows.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import time
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from drivetrain.api.sources import Generator
from drivetrain.core.replay.replay import first_row
from drivetrain.errors import InputError
from drivetrain.spark.connector.planner_process import end_with_connection
from drivetrain.spark.measure.batch_limit import DEFAULT_BATCH_ROWS, limited

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT_NAME = "drivetrain_generator"
_RANGE_ROWS = 4096
_MIN_TASK_ROWS = 50_000


@dataclass(frozen=True)
class GeneratorPlan:
    """The reader's parameters, as plain values."""

    rows: int | None
    rate_per_s: float | None
    max_batch_rows: int
    parallelism: int
    first_row: int = 0
    limit_path: str | None = None


class IdRange(InputPartition):
    """The ids [low, high) of one Spark task."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__((low, high))
        self.low = low
        self.high = high


class GeneratorDataSource(DataSource):
    """Spark's entry point; the option `plan` is a `GeneratorPlan` in JSON."""

    @classmethod
    def name(cls) -> str:
        """The format's name in `spark.readStream.format`."""
        return FORMAT_NAME

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._plan = GeneratorPlan(**json.loads(options["plan"]))

    def schema(self) -> str:
        """Ranges of ids; `open_generator` makes rows of them."""
        return "lo long, hi long"

    def streamReader(self, schema: StructType) -> GeneratorReader:  # noqa: N802 - Spark's name
        """The reader of ranges."""
        end_with_connection()
        return GeneratorReader(self._plan)


class GeneratorReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Delivers ranges of ids; an offset is `{"rows": n}`."""

    def __init__(self, plan: GeneratorPlan, now_s: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._now_s = now_s
        self._began: tuple[float, int] | None = None
        self._frozen_at: int | None = None
        self._freeze = False

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Before the first row, or the first of a replay."""
        return {"rows": self._plan.first_row}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of one batch in rows."""
        return ReadMaxRows(self._plan.max_batch_rows)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The end of the next batch, by rate, limit and number of rows."""
        at = start["rows"]
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._plan.max_batch_rows
        most = limited(most, self._plan.limit_path)
        end = min(at + most, self._available(at))
        if self._freeze:
            # Everything available now; for an endless generator without a rate, one batch.
            self._frozen_at = end if self._plan.rows is None else self._plan.rows
            self._freeze = False
        if self._frozen_at is not None:
            end = min(end, max(at, self._frozen_at))
        return {"rows": max(at, end)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Treat the rows available at the first batch as all; bounded generators run to their end."""
        self._freeze = True

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[IdRange]:
        """The batch in equal ranges, one per core; a small batch stays in one task."""
        low, high = start["rows"], end["rows"]
        parts = max(1, min(self._plan.parallelism, (high - low) // _MIN_TASK_ROWS))
        borders = [low + (high - low) * part // parts for part in range(parts + 1)]
        return [IdRange(a, b) for a, b in itertools.pairwise(borders) if a < b]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The task's range in pieces of a few thousand ids."""
        assert isinstance(partition, IdRange)
        low = np.arange(partition.low, partition.high, _RANGE_ROWS, dtype=np.int64)
        high = np.minimum(low + _RANGE_ROWS, partition.high)
        yield pa.RecordBatch.from_arrays([pa.array(low), pa.array(high)], names=["lo", "hi"])

    def _available(self, at: int) -> int:
        total = self._plan.rows
        if self._plan.rate_per_s is None or (self._freeze and total is not None):
            available = at + self._plan.max_batch_rows
        else:
            if self._began is None:
                self._began = (self._now_s(), at)
            began_s, first = self._began
            available = first + int((self._now_s() - began_s) * self._plan.rate_per_s)
        return available if total is None else min(total, available)


def open_generator(
    spark: SparkSession,
    source: Generator,
    max_batch_rows: int | None,
    where: str,
    first_row: int = 0,
    limit_path: str | None = None,
) -> DataFrame:
    """The rows of `source` as a streaming DataFrame: `id long, ts timestamp`, and the user's columns.

    A query without a checkpoint begins with row `first_row`. The file at `limit_path` limits batches further.

    Raises InputError when `start` or an expression cannot be read.
    """
    plan = GeneratorPlan(
        rows=source.rows,
        rate_per_s=source.rate_per_s,
        max_batch_rows=max_batch_rows or DEFAULT_BATCH_ROWS,
        parallelism=spark.sparkContext.defaultParallelism,
        first_row=first_row,
        limit_path=limit_path,
    )
    spark.dataSource.register(GeneratorDataSource)
    ranges = spark.readStream.format(FORMAT_NAME).option("plan", json.dumps(dataclasses.asdict(plan))).load()
    ids = ranges.select(F.explode(F.expr("sequence(lo, hi - 1)")).alias("id"))
    return generate_rows(ids, source, where)


def first_row_of(source: Generator, from_ms: int | None, where: str) -> int:
    """The first row at or after `from_ms` (None: the very first); raises InputError like `open_generator`."""
    if from_ms is None:
        return 0
    if source.step_us == 0:  # all rows have the same timestamp
        return 0
    row = first_row(_start_us(source.start, where), source.step_us, from_ms)
    return row if source.rows is None else min(row, source.rows)


def generate_rows(ids: DataFrame, source: Generator, where: str) -> DataFrame:
    """The rows of `source` for a DataFrame of `id`s; raises InputError like `open_generator`."""
    moment = F.timestamp_micros(F.lit(_start_us(source.start, where)) + F.col("id") * F.lit(source.step_us))
    rows = ids.select("id", moment.alias("ts"))
    for name, expression in source.columns.items():
        try:
            rows = rows.select("*", F.expr(expression).alias(name))
        except (AnalysisException, ParseException) as error:
            raise InputError(
                f"the expression of column {name} cannot be read",
                where=where,
                expected="a Spark SQL expression over id, ts and the columns before it",
                got=expression,
                remedy=str(error).splitlines()[0],
            ) from error
    return rows


def _start_us(start: str, where: str) -> int:
    try:
        moment = dt.datetime.fromisoformat(start)
    except ValueError as error:
        raise InputError(
            "the start of the generator is not a timestamp",
            where=where,
            expected="ISO 8601, such as 2024-01-01T00:00:00Z",
            got=start,
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
