"""Adapters that read the sources which applications declare."""

from drivetrain.spark.sources.context import (
    BAD_COLUMN,
    BAD_COLUMN_TYPE,
    OpenedSource,
    Position,
    SourceContext,
)

__all__ = ["BAD_COLUMN", "BAD_COLUMN_TYPE", "OpenedSource", "Position", "SourceContext"]
