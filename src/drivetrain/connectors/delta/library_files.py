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
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from drivetrain.connectors.delta.table_library import arrow_schema, deltalake
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
    for number in range(since + 1, since + _MOST_ENTRIES):
        try:
            entry = (directory / "_delta_log" / f"{number:020d}.json").read_text()
        except FileNotFoundError:
            break
        for name in added_names(entry):
            with contextlib.suppress(FileNotFoundError):  # another writer's, deleted since
                sync(directory / name)
                folders.add((directory / name).parent)
    for folder in folders:
        sync(folder)


def added_names(entry: str) -> list[str]:
    """The names of the files that an entry of the log adds."""
    actions = [json.loads(line) for line in entry.splitlines() if line.strip()]
    return [unquote(action["add"]["path"]) for action in actions if "add" in action]


def _inexact(field: pa.Field, path: str) -> list[str]:
    if pa.types.is_struct(field.type):
        return [found for one in field.type for found in _inexact(one, f"{path}.{one.name}")]
    return [path] if pa.types.is_decimal(field.type) or pa.types.is_floating(field.type) else []
