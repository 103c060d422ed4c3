"""Compaction of a Delta table: small files become larger ones, beside sinks that write to it.

The problem: a compaction reads files while sinks add and replace some. It must not bring back rows that were
replaced meanwhile, nor stop a sink.

The design: the library makes one commit that removes the small files, adds the joined ones, and says that
no data has changed, so that readers of the table as a stream take nothing from it. An append in between does
not matter to either side. If a commit in between has removed one of the files, the library refuses: we begin
again with the newest version. A sink that replaces rows begins its commit again likewise, with the
table's marks (see `table_writer`), which a compaction leaves alone.

What if we die here: before the commit, files lie in the directory that nothing names; VACUUM deletes them.
After it, the table is compacted.

Called by the connector of Delta tables. Source: the documentation of delta-rs, "Optimize".
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drivetrain.connectors.delta.delta_table import DeltaTarget
from drivetrain.connectors.tables.compaction import Compaction, Sized, groups_of, planned, total_bytes
from drivetrain.connectors.tables.repeated_commits import repeated
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.errors import InputError, OutputError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_KNOWN = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""Features of tables whose rules hold for joined files, too."""
_UNKNOWN_IF_USED = frozenset({"columnMapping", "deletionVectors"})
_ELSEWHERE = "compact it with Spark: OPTIMIZE of delta-spark, which knows these features"


def compact_delta(target: DeltaTarget, target_bytes: int, timeout_ms: int, *, dry_run: bool) -> Compaction:
    """Join the small files of the table, or tell what that would do.

    Raises `InputError` if there is no table, `OutputError` for a table that cannot be compacted, and
    `UnavailableError` when other writers remove its files for longer than `timeout_ms`.
    """
    return repeated(
        lambda: _compacted(target, target_bytes, dry_run=dry_run), target, timeout_ms, "the compaction"
    )


def _compacted(target: DeltaTarget, target_bytes: int, *, dry_run: bool) -> Compaction:
    table = _table(target)
    files = _files(table)
    # The library leaves only files alone that have the whole size.
    plan = planned(target.where, files, groups_of(files, target_bytes, large_enough=1))
    if dry_run or not plan.replaced_files:
        return plan if dry_run else Compaction(target.where, len(files), total_bytes(files))
    found = target.compact(table, target_bytes)
    maybe_crash(CrashPoint.AFTER_TRANSACTION)
    written, replaced = found["numFilesAdded"], found["numFilesRemoved"]
    return Compaction(
        table=target.where,
        files=len(files),
        bytes=total_bytes(files),
        replaced_files=replaced,
        replaced_bytes=_bytes_of(found["filesRemoved"]),
        written_files=written,
        written_bytes=_bytes_of(found["filesAdded"]),
    )


def _table(target: DeltaTarget) -> DeltaTable:
    if not target.exists():
        raise InputError(
            "there is no Delta table",
            where=target.where,
            got=_kind_of(target.identity),
            remedy=_remedy_for(target.identity),
        )
    table = target.refreshed()
    if table is None:
        raise target.vanished()
    unknown = set(table.protocol().writer_features or ()) - _KNOWN - _UNKNOWN_IF_USED
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        unknown.add("columnMapping")
    if pa.table(table.deletion_vectors()).num_rows:
        unknown.add("deletionVectors")
    if unknown:
        raise OutputError(
            "the table has features with which it is not compacted here",
            where=target.where,
            got=", ".join(sorted(unknown)),
            remedy=_ELSEWHERE,
        )
    return table


def _files(table: DeltaTable) -> list[Sized[str]]:
    by = table.metadata().partition_columns
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        Sized(row["path"], row["size_bytes"], tuple(row[f"partition.{name}"] for name in by)) for row in rows
    ]


def _bytes_of(figures: Any) -> int:
    """The whole size in one of the library's figures, which are JSON as text."""
    return int((json.loads(figures) if isinstance(figures, str) else figures)["totalSize"])


def _kind_of(place: str) -> str | None:
    """What is in a local directory instead."""
    if "://" in place:
        return None
    if not os.path.isdir(place):
        return "no directory"
    if _is_iceberg(place):
        return "a directory of an Iceberg table"
    has_parquet = any(name.endswith(".parquet") for name in os.listdir(place))
    return "a directory of Parquet files without a table's log" if has_parquet else "another directory"


def _remedy_for(place: str) -> str:
    if "://" not in place and _is_iceberg(place):
        return "name the table as its catalog does: drivetrain compact NAMESPACE.NAME --catalog CATALOG"
    return (
        "check the path. The files of a file sink are joined before readers see them, with roll= in the "
        "sink; a table of a catalog needs --catalog"
    )


def _is_iceberg(place: str) -> bool:
    metadata = os.path.join(place, "metadata")
    return os.path.isdir(metadata) and any(name.endswith(".metadata.json") for name in os.listdir(metadata))
