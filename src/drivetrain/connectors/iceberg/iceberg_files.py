"""Data files as Iceberg describes them: statistics from their footers, and typed values of partitions.

Called by `iceberg_table`, `merged_files` and `iceberg_compaction`. Source: "Manifests" and "Partition
Transforms" in Iceberg's specification.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from drivetrain.api.connectors.partition_names import UNITS, partition_name
from drivetrain.connectors.iceberg.iceberg_catalog import IcebergPlace
from drivetrain.connectors.partition_values import value_of
from drivetrain.connectors.tables.data_files import DataFile, Layout
from drivetrain.connectors.tables.table_marks import is_mark

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as DescribedFile
    from pyiceberg.table import Table
    from pyiceberg.transforms import Transform

_DATA_PATH = "write.data.path"


def place_of(table: Table) -> IcebergPlace:
    """Where the table's data files are."""
    location = table.properties.get(_DATA_PATH) or f"{table.location().rstrip('/')}/data"
    properties = {name: str(text) for name, text in table.io.properties.items() if not is_mark(name)}
    return IcebergPlace(location, tuple(sorted(properties.items())))


def arrow_columns(table: Table) -> pa.Schema:
    """The table's columns, in Arrow's types."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(table.schema(), include_field_ids=False)


def file_layout(
    table: Table, names: list[str], stem: str, where: str, required: tuple[str, ...] = ()
) -> Layout:
    """How files with these columns of the table are written: each column with its number in the table."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    numbered = schema_to_pyarrow(table.schema())
    columns = pa.schema([numbered.field(name) for name in names])
    partition_by = declared_partitions(table)
    return Layout(place_of(table), stem, columns, partition_by, required, self_contained=True, where=where)


def read_file(table: Table, task: Any) -> pa.Table:
    """The rows of one file of a scan, in the table's columns."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    return ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table([task])


def declared_partitions(table: Table) -> tuple[str, ...]:
    """The table's partitions as a sink declares them; others by Iceberg's name, such as `bucket[4](id)`."""
    found = []
    for field in table.spec().fields:
        column, transform = table.schema().find_column_name(field.source_id), str(field.transform)
        found.append(str(column) if transform == "identity" else f"{transform}({column})")
    return tuple(found)


def unknown_partitions(table: Table) -> list[str]:
    """The partitions that files of Spark's tasks are not divided by."""
    transforms = [(str(field.transform), field.source_id) for field in table.spec().fields]
    return [
        f"partitions {transform} of {table.schema().find_column_name(id)}"
        for transform, id in transforms
        if transform not in (*UNITS, "identity")
    ]


def transform_of(unit: str | None) -> Transform[Any, Any]:
    """The library's object for a unit of time; None: the values themselves."""
    from pyiceberg.transforms import parse_transform

    return parse_transform(unit or "identity")


def described(table: Table, file: DataFile) -> DescribedFile:
    """A written file, as manifests have it."""
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile as DescribedFile
    from pyiceberg.manifest import DataFileContent, FileFormat

    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=pq.read_metadata(io.BytesIO(file.footer)),
        stats_columns=compute_statistics_plan(table.schema(), table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(table.schema()),
    )
    return DescribedFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{place_of(table).location}/{file.name}",
        file_format=FileFormat.PARQUET,
        partition=_partition(table, file),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _partition(table: Table, file: DataFile) -> Any:
    from pyiceberg.partitioning import partition_record_value
    from pyiceberg.typedef import Record

    columns = arrow_columns(table)
    values = []
    for field, declared in zip(table.spec().fields, declared_partitions(table), strict=True):
        text, partition = file.partition[declared], partition_name(declared)
        if text is None or partition.unit is not None:
            values.append(None if text is None else int(text))
            continue
        value = text if text == "" else value_of(text, columns.field(partition.column).type).as_py()
        values.append(partition_record_value(field, value, table.schema()))
    return Record(*values)
