"""A Delta table that is read as Spark reads a source, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql.streaming.datasource import ReadMaxBytes

from drivetrain.api import sources
from drivetrain.connectors.delta.delta_reader import DeltaPlan, DeltaStreamReader
from drivetrain.connectors.delta.opened_delta import _planned
from drivetrain.connectors.schema import from_arrow
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.spark.connector.source import SourceContext


class DeltaReading:
    """Does what Spark does with a source: keeps offsets, plans batches, and reads their parts."""

    def __init__(
        self,
        place: str | Path,
        directory: Path,
        state: str = "state",
        *,
        stores: StoreSettings | None = None,
        **settings: Any,
    ) -> None:
        self.source = sources.delta(place, **settings)
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
        context = SourceContext(spark, str(directory / state), "app-1", "s", stores=stores or StoreSettings())
        plan, schema = _planned(self.source, context)
        self.plan = DeltaPlan.from_json(plan.to_json())
        self.schema = from_arrow(schema, "t")
        self.reader = DeltaStreamReader(self.plan, self.schema)
        self.at = self.reader.initialOffset()

    def batch(self, limit_bytes: int = 10**9) -> list[dict[str, Any]]:
        """The rows of the next batch."""
        self.reader._look_due_s = 0.0
        start, self.at = self.at, self.reader.latestOffset(self.at, ReadMaxBytes(limit_bytes))
        return self.rows(start, self.at)

    def rows(self, start: Any, end: Any) -> list[dict[str, Any]]:
        """The rows between two offsets."""
        parts = self.reader.partitions(start, end)
        return [row for part in parts for rows in self.reader.read(part) for row in rows.to_pylist()]


def ids(rows: list[dict[str, Any]]) -> list[int]:
    """The ids of rows, in order."""
    return sorted(row["id"] for row in rows)
