"""A batch of given rows, in place of a DataFrame: it has all methods that sinks call on a small one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass
class ArrowFrame:
    table: pa.Table

    @property
    def columns(self) -> list[str]:
        return list(self.table.schema.names)

    @property
    def schema(self) -> StructType:
        return from_arrow_schema(self.table.schema)

    def withColumn(self, name: str, column: Any) -> ArrowFrame:
        """Add the column that the outbox adds; its values are never read."""
        times = pa.array([0] * self.table.num_rows, pa.timestamp("us", "UTC"))
        return ArrowFrame(self.table.append_column(name, times))

    def toArrow(self) -> pa.Table:
        return self.table

    def _collect_as_arrow(self, *, empty_list_if_zero_records: bool) -> list[pa.RecordBatch]:
        assert not empty_list_if_zero_records
        empty = pa.RecordBatch.from_pylist([], schema=self.table.schema)
        return self.table.to_batches() or [empty]


def rows(*ids: int) -> Any:
    """Rows with an id each."""
    return frame(id=pa.array(ids, pa.int64()))


def frame(**columns: Any) -> Any:
    """Rows with these columns."""
    return ArrowFrame(pa.table(columns))
