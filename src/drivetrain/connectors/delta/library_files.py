"""Data files that the library of Delta tables writes itself, when it merges and compacts.

The problem: it leaves it to the system when they reach the disk, and its statistics are not exact for all
types: decimals become floating-point numbers, and NaN is left out. A reader that trusts those skips files
that have the rows it looks for.

The design: files that a commit names are synced after it. For columns of such types, and for nested ones,
whose parts the library cannot tell apart, no statistics are written, as in the files of sinks
(`column_statistics`); and a new table says of which columns there are any. Largest timestamps are those of
Delta's protocol: rounded down to milliseconds, which its readers know.

Called by `delta_table`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from drivetrain.connectors.delta.table_library import arrow_schema, deltalake
from drivetrain.connectors.delta.table_log import actions_of, entry_name
from drivetrain.connectors.tables.column_statistics import MOST_COLUMNS, is_ordered
from drivetrain.durable import sync

if TYPE_CHECKING:
    from deltalake import DeltaTable

_MOST_ENTRIES = 1_000
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def exact_statistics(table: DeltaTable) -> Any:
    """The library's settings for files in which no statistics are inexact."""
    library = deltalake()
    exact = library.ColumnProperties(statistics_enabled="CHUNK")
    return library.WriterProperties(
        compression="ZSTD",
        default_column_properties=library.ColumnProperties(statistics_enabled="NONE"),
        column_properties=dict.fromkeys(_exact(arrow_schema(table)), exact),
    )


def settings_of(columns: pa.Schema) -> dict[str, str]:
    """The settings of a new table: the columns of which files have statistics.

    Readers that expect some of each of the first 32 columns may take a missing one for null: those of the
    library do.
    """
    exact = _exact(pa.schema(list(columns)[:MOST_COLUMNS]))
    if len(exact) == len(columns):
        return {}
    if not exact:
        return {"delta.dataSkippingNumIndexedCols": "0"}
    return {"delta.dataSkippingStatsColumns": ",".join(map(_quoted, exact))}


def sync_added(directory: Path, since: int) -> None:
    """Make the files durable that the entries of the log after version `since` have added."""
    folders = set()
    for entry in entries_since(directory, since):
        for name in added_names(entry.read_bytes()):
            with contextlib.suppress(FileNotFoundError):  # another writer's, deleted since
                sync(directory / name)
                folders.add((directory / name).parent)
    for folder in folders:
        sync(folder)


def entries_since(directory: Path, since: int) -> Iterator[Path]:
    """The entries of the log of a local table after version `since`, in order."""
    for version in range(since + 1, since + _MOST_ENTRIES):
        entry = directory / "_delta_log" / entry_name(version)
        if not entry.exists():
            return
        yield entry


def added_names(entry: bytes) -> list[str]:
    """The names of the files that an entry of the log adds."""
    return [unquote(action["add"]["path"]) for action in actions_of(entry) if "add" in action]


def _exact(columns: pa.Schema) -> list[str]:
    """The columns whose smallest and largest values have one form and one order, for all readers."""
    return [
        field.name for field in columns if is_ordered(field.type) and not pa.types.is_floating(field.type)
    ]


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"
