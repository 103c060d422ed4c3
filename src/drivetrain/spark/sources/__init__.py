"""Adapters that read the sources which applications declare."""

from drivetrain.spark.sources.context import (
    BAD_COLUMN,
    BAD_COLUMN_TYPE,
    OpenedSource,
    Position,
    SourceContext,
)
from drivetrain.spark.sources.open_source import open_source
from drivetrain.spark.sources.read_whole import read_whole
from drivetrain.spark.sources.validation import validate_source

__all__ = [
    "BAD_COLUMN",
    "BAD_COLUMN_TYPE",
    "OpenedSource",
    "Position",
    "SourceContext",
    "open_source",
    "read_whole",
    "validate_source",
]
