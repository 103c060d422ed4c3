"""Data files that the library of Delta tables writes itself, when it merges and compacts.

The problem: it leaves it to the system when they reach the disk, and its statistics are not exact for all
types: decimals become floating-point numbers, and NaN is left out. A reader that trusts those skips files
that have the rows it looks for.

The design: files that a commit names are synced after it. For columns of such types no statistics are
written, as in the files of sinks (`column_statistics`). Largest timestamps are those of Delta's protocol:
rounded down to milliseconds, which its readers know.

Called by `delta_table`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from drivetrain.connectors.delta.table_library import arrow_schema, deltalake
from drivetrain.connectors.delta.table_log import actions_of, entry_name
from drivetrain.durable import sync

if TYPE_CHECKING:
    from deltalake import DeltaTable

_MOST_ENTRIES = 1_000


def exact_statistics(table: DeltaTable) -> Any:
    """The library's settings for files in which no statistics are inexact."""
    library = deltalake()
    none = library.ColumnProperties(statistics_enabled="NONE")
    inexact = [path for field in arrow_schema(table) for path in _inexact(field, field.name)]
    return library.WriterProperties(compression="ZSTD", column_properties=dict.fromkeys(inexact, none))


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


def _inexact(field: pa.Field, path: str) -> list[str]:
    if pa.types.is_struct(field.type):
        return [found for one in field.type for found in _inexact(one, f"{path}.{one.name}")]
    return [path] if pa.types.is_decimal(field.type) or pa.types.is_floating(field.type) else []
