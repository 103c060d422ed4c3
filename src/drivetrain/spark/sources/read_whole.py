"""Bounded sources read at once, as tables that streams are joined with.

Called by the engine for every table of a graph.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from drivetrain.api.sources import FileSource, Generator, Items, Source
from drivetrain.errors import GraphError
from drivetrain.spark.sources.context import SourceContext
from drivetrain.spark.sources.file_reader import FORMAT_NAME, FileDataSource
from drivetrain.spark.sources.generator import generate_rows
from drivetrain.spark.sources.open_source import plan_files
from drivetrain.spark.sources.schema import to_struct
from drivetrain.spark.sources.validation import validate_generator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def read_whole(source: Source, context: SourceContext) -> DataFrame:
    """A bounded source as a batch DataFrame with the user's columns.

    A record that cannot be read always fails: a table has no dead letters. The files are those that were
    there when the application first started, as for a stream. Raises GraphError for a source without
    end, and InputError as `open_source` does.
    """
    if not source.bounded:
        raise GraphError(
            "a source without end cannot be a table",
            where=context.source_id,
            expected="files without watch=True, a generator with rows, or items",
            got=type(source).__name__,
            remedy="join the two streams within a time range instead",
        )
    if isinstance(source, FileSource):
        plan, struct, _, _ = plan_files(dataclasses.replace(source, on_bad_record="fail"), context)
        context.spark.dataSource.register(FileDataSource)
        reader = context.spark.read.format(FORMAT_NAME).schema(struct)
        return reader.option("plan", plan.to_json()).load()
    if isinstance(source, Generator):
        validate_generator(source, context.source_id)
        return generate_rows(context.spark.range(source.rows or 0), source, context.source_id)
    assert isinstance(source, Items)
    rows = [
        dataclasses.astuple(row) if dataclasses.is_dataclass(row) and not isinstance(row, type) else row
        for row in source.iterable
    ]
    return context.spark.createDataFrame(rows, to_struct(source.schema, context.source_id))
