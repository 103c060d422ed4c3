"""Columns that the declaration of a sink names.

Called by the Delta and SQL sinks, with the first batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from drivetrain.errors import OutputError


def require_columns(given: Sequence[str], wanted: Sequence[str], where: str, what: str) -> None:
    """Raise `OutputError` unless a batch has the columns that the declaration names as `what`."""
    missing = [name for name in wanted if name not in given]
    if missing:
        raise OutputError(
            f"the sink has no column {', '.join(missing)}",
            where=where,
            expected=f"{', '.join(missing)} among the columns of the sink",
            got=", ".join(given),
            remedy=f"correct {what}, or select such a column before the sink",
        )
