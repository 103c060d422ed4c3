"""The order in which rows of a batch replace each other.

Called by the Redis and SQLite sinks, whose systems cannot compare all of Spark's values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc


def oldest_first(batches: Iterable[pa.RecordBatch], newest: str | None) -> Iterator[pa.RecordBatch]:
    """The rows by the column `newest`, nulls first and equal ones in their order; None: as they are."""
    if newest is None:
        yield from batches
        return
    together = list(batches)
    if not together:
        return
    table = pa.Table.from_batches(together)
    # The sort is stable: among equals the last one counts.
    nulls, others = table.filter(pc.is_null(table[newest])), table.filter(pc.is_valid(table[newest]))
    yield from nulls.to_batches()
    yield from others.take(pc.sort_indices(others, [(newest, "ascending")])).to_batches()
