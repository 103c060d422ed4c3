"""Small batches come to the driver as Arrow; large ones must not, and nobody knows which it is before.

The problem: a job that writes a small batch from Spark's tasks costs a Python worker's call for each
partition, several times what the rows cost. But rows that come to the driver are held there by Java and by
Python. A batch of a backlog that does not fit ends the JVM, and its size is known only when it was computed.

The design: the rows are counted on the way, by the generated code that makes them. A partition stops at the
first row at which all rows before it, were they as large as this one, would be too many bytes. With rows of
about the same size that is when so many bytes have passed. So little more than the limit is ever held.

What was computed up to there is computed again by who calls.

Invariants:

1. A table has all rows of the batch, in order, or there is none.
2. No partition hands over more than the limit, if rows do not shrink by orders of magnitude on the way.

Called by the sinks that write from the driver, and by the writer of channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import BinaryType, StringType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

LIMIT_BYTES: Final = 64 << 20
"""Of all partitions together."""
_MARK: Final = "drivetrain: more than the driver takes"
_REFUSED: Final = (_MARK, "maxResultSize")
_FIELD_BYTES: Final = 8
_ROWS_BITS: Final = 33
"""As many low bits of Spark's `monotonically_increasing_id` are the number of a row in its partition."""


def small_table(df: DataFrame) -> pa.Table | None:
    """The rows of a batch as one table, None when they are more than about `LIMIT_BYTES`."""
    partitions = max(1, int(df.sparkSession.conf.get("spark.sql.shuffle.partitions", "1") or 1))
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << _ROWS_BITS) - 1))
    size = F.lit(_FIELD_BYTES * len(df.columns))
    for field in df.schema.fields:
        if isinstance(field.dataType, StringType | BinaryType):
            size += F.coalesce(F.octet_length(F.col(_quoted(field.name))), F.lit(0))
    is_much = row * size > LIMIT_BYTES // partitions
    counted = df.where(F.when(is_much, F.raise_error(F.lit(_MARK)).cast("boolean")).otherwise(F.lit(True)))
    try:
        return counted.toArrow()
    except Exception as error:
        if any(sign in str(error) for sign in _REFUSED):
            return None
        raise


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
