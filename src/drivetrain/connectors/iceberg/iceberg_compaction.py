"""Compaction of an Iceberg table: small files become larger ones, beside sinks that write to it.

The problem: each commit moves the table to a new snapshot, so of two writers that began with the same one,
the second is refused. While a compaction reads and writes for minutes, a sink commits every second. And
nothing may bring back rows that a sink has replaced meanwhile.

The design: each group of small files is joined into one file that nothing names yet. Then one commit
puts the joined files in place of the small ones, on the condition that the branch is at the snapshot that we
have just looked at; only groups whose files are all still there, without removed rows, take part. When the
commit is refused, we look again and commit once more: the files are written already. A sink that is refused
because of our commit does the same, with its marks (see `table_writer`), which a compaction leaves alone.

What if we die here: before the commit, files lie in the table's directory that nothing names, and another
engine deletes them when it removes orphan files. After it, the table is compacted.

Invariants:

1. A commit changes no row: its files have exactly the rows of those that it removes.
2. A joined file is deleted only when it is certain that no commit has named it.

Called by the connector of Iceberg tables. Source: Iceberg's "rewrite_data_files".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drivetrain.connectors.iceberg.iceberg_files import arrow_columns, file_layout, read_file
from drivetrain.connectors.iceberg.iceberg_table import IcebergTarget
from drivetrain.connectors.tables.compaction import Compaction, Sized, groups_of, planned, total_bytes
from drivetrain.connectors.tables.data_files import MOST_FILE_BYTES, DataFile, write_batches
from drivetrain.connectors.tables.repeated_commits import repeated
from drivetrain.connectors.tables.table_target import ConflictError
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.errors import InputError, UnavailableError

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True)
class _Joined:
    """A group of small files, and the files with its rows that are to take their place."""

    small: list[Sized[Any]]
    written: list[DataFile]


def compact_iceberg(
    target: IcebergTarget, target_bytes: int, timeout_ms: int, *, dry_run: bool
) -> Compaction:
    """Join the small files of the table, or tell what that would do.

    Files with removed rows in separate files, and those of earlier partitions, stay as they are. Raises
    `InputError` if there is no table, `OutputError` for a table whose rules are not known, and
    `UnavailableError` when other writers commit all the time for longer than `timeout_ms`.
    """
    table = _table(target)
    files = [_sized(task) for task in table.scan().plan_files()]
    joinable = [file for file in files if _is_whole(file.file) and _spec_of(file) == table.spec().spec_id]
    groups = groups_of(joinable, min(target_bytes, MOST_FILE_BYTES))
    plan = planned(target.where, files, groups)
    if dry_run or not groups:
        return replace(plan, is_planned=dry_run)
    change = _Change(target, table, _joined(target, table, groups))
    maybe_crash(CrashPoint.IN_TRANSACTION)
    done = change.committed(timeout_ms)
    maybe_crash(CrashPoint.AFTER_TRANSACTION)
    written = [file for one in done for file in one.written]
    replaced = [file for one in done for file in one.small]
    return replace(
        plan,
        replaced_files=len(replaced),
        replaced_bytes=total_bytes(replaced),
        written_files=len(written),
        written_bytes=sum(file.size_bytes for file in written),
        overtaken_files=plan.replaced_files - len(replaced),
        is_planned=False,
    )


def _table(target: IcebergTarget) -> Table:
    table = target.refreshed()
    if table is None:
        raise InputError(
            "there is no such table in the catalog",
            where=target.where,
            remedy="check the names of the table and of the catalog, and the catalog's options",
        )
    target.require_appendable(table)
    return table


def _joined(target: IcebergTarget, table: Table, groups: Sequence[list[Sized[Any]]]) -> list[_Joined]:
    """Write a file for each group; deletes all of them after an error."""
    layout = file_layout(table, arrow_columns(table).names, f"compacted-{uuid.uuid4().hex}-", target.where)
    joined: list[_Joined] = []
    written: list[DataFile] = []
    try:
        for group in groups:
            before = len(written)
            written += write_batches(_rows(table, group), layout)
            joined.append(_Joined(group, written[before:]))
    except BaseException as error:
        target.delete(table, written)
        if isinstance(error, Exception):
            raise target.meant(error) from error
        raise
    return joined


def _rows(table: Table, group: Sequence[Sized[Any]]) -> Iterator[pa.RecordBatch]:
    """The rows of some files, one file in memory at a time."""
    for small in group:
        yield from read_file(table, small.file).combine_chunks().to_batches()


class _Change:
    """Puts joined files in place of the small ones, as far as those are still there."""

    def __init__(self, target: IcebergTarget, table: Table, joined: Sequence[_Joined]) -> None:
        self._target = target
        self._table = table
        self._joined = joined
        self._is_certain = True
        """Whether no try can have been carried out whose answer was lost."""

    def committed(self, timeout_ms: int) -> list[_Joined]:
        """The groups that are committed; deletes the files of the others."""
        try:
            done = repeated(self._commit, self._target, timeout_ms, "the compaction")
        except UnavailableError:
            self._delete_all_but([])
            raise
        self._delete_all_but(done)
        return done

    def _commit(self) -> list[_Joined]:
        """Commit what is possible; raises `ConflictError` if another commit comes first."""
        table = self._target.refreshed()
        if table is None:
            raise self._target.vanished()
        there = {task.file.file_path: task for task in table.scan().plan_files()}
        done = [one for one in self._joined if _is_in(one, there)]
        if done:
            return done  # the answer to an earlier try was lost
        if table.schema() != self._table.schema() or table.spec() != self._table.spec():
            return []
        possible = [one for one in self._joined if _is_possible(one, there)]
        if not possible:
            return []
        removed = [small.file.file for one in possible for small in one.small]
        try:
            self._target.replace(table, removed, [file for one in possible for file in one.written])
        except ConflictError as error:
            self._is_certain = self._is_certain and error.is_certain
            raise
        return possible

    def _delete_all_but(self, done: Sequence[_Joined]) -> None:
        if self._is_certain:
            others = [one for one in self._joined if one not in done]
            self._target.delete(self._table, [file for one in others for file in one.written])


def _is_possible(joined: _Joined, there: dict[str, Any]) -> bool:
    tasks = [there.get(_path(small)) for small in joined.small]
    return all(task is not None and _is_whole(task) for task in tasks)


def _is_in(joined: _Joined, there: dict[str, Any]) -> bool:
    names = {file.name for file in joined.written}
    return any(path.endswith(tuple(names)) for path in there)


def _sized(task: Any) -> Sized[Any]:
    file = task.file
    return Sized(task, file.file_size_in_bytes, (file.spec_id, tuple(file.partition)))


def _is_whole(task: Any) -> bool:
    """Whether no separate file says that some of the rows are removed."""
    return not task.delete_files


def _spec_of(file: Sized[Any]) -> int:
    return int(file.file.file.spec_id)


def _path(file: Sized[Any]) -> str:
    return str(file.file.file.file_path)
