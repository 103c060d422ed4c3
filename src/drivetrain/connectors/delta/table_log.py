"""What a table's versions add, in order: the input of a source as one row of files.

The problem: a batch must read the same files when it runs again, while the table changes, is compacted, and
deletes old entries of its log.

The design: the first start notes where the source begins and which columns it has (`Beginning`), and the
files of the version with which it begins. After that come the files that each later version adds, in the
order of its entry in the log. Entries never change, so a position is a version and a number of its files.
Sources read the entries themselves: the table's library has no view of a single version.

Invariants:

1. Equal positions have the same files before them, whatever happens to the table.
2. A version that removes or replaces rows is an error or adds nothing; it never adds a part of its rows.

Called by the source of Delta tables. Source: "Delta Log Entries" and "Actions" in Delta's protocol.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow.fs as pafs

from drivetrain.errors import InputError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.whole_files import read_whole_file

MAX_FILES_PER_BATCH = 10_000
_KEPT_VERSIONS = 64


class TableFile(msgspec.Struct, frozen=True):
    """A file of the table: its name, relative to the table's directory, and its partition as text."""

    name: str
    size_bytes: int
    partition: dict[str, str | None]


class Beginning(msgspec.Struct, frozen=True):
    """Where a source begins, and what it takes for granted from then on.

    `files` are those of version `first`, if the source begins with the rows of a version, else None: then it
    begins with what `first` appended. `last` is the last version of a bounded source. `columns` are
    the types of the table's columns by name, as its log has them.
    """

    first: int
    last: int | None
    files: tuple[TableFile, ...] | None
    columns: dict[str, Any]
    partition_by: tuple[str, ...]


class LogPosition(msgspec.Struct, frozen=True):
    """A position: everything before `version`, and `files` of its files, are taken; in all, `bytes`."""

    version: int
    files: int = 0
    bytes: int = 0


class TableLog:
    """The files of a table in the order in which a source takes them."""

    def __init__(
        self, directory: str, beginning: Beginning, *, skip_changes: bool, stores: StoreSettings | None = None
    ) -> None:
        self._filesystem, root = locate(directory, stores)
        self._entries = f"{root}/_delta_log"
        self._directory = directory
        self._beginning = beginning
        self._skip_changes = skip_changes
        self._read = lru_cache(_KEPT_VERSIONS)(self._read_version)

    def files(self, version: int) -> tuple[TableFile, ...] | None:
        """The files that a version adds to the source; None if there is no such version yet.

        Raises `InputError` for a version that the source cannot follow, or whose entry was deleted.
        """
        begun = self._beginning
        if version == begun.first and begun.files is not None:
            return begun.files
        try:
            return self._read(version)
        except FileNotFoundError:
            self._require_unborn(version)
            return None

    def advanced(self, place: LogPosition, limit_bytes: int | None, last: int | None) -> LogPosition:
        """The place after at most so many bytes (None: no limit), or one file, up to version `last`."""
        version, taken, size = place.version, place.files, 0
        count = 0
        while last is None or version <= last:
            files = self.files(version)
            if files is None:
                break
            for file in files[taken:]:
                too_much = limit_bytes is not None and size + file.size_bytes > limit_bytes
                if count and (too_much or count >= MAX_FILES_PER_BATCH):
                    return LogPosition(version, taken, place.bytes + size)
                size, taken, count = size + file.size_bytes, taken + 1, count + 1
            version, taken = version + 1, 0
        return LogPosition(version, taken, place.bytes + size)

    def between(self, start: LogPosition, end: LogPosition) -> list[TableFile]:
        """The files from one place to a later one; raises `InputError` if their entry was deleted."""
        found: list[TableFile] = []
        for version in range(start.version, end.version + 1):
            last = end.files if version == end.version else None
            if last == 0:
                continue
            files = self.files(version)
            if files is None:
                raise entry_gone(version, self._directory)
            found += files[start.files if version == start.version else 0 : last]
        return found

    def total_bytes(self, last: int) -> int:
        """How much there is up to version `last`."""
        place = LogPosition(self._beginning.first)
        while (end := self.advanced(place, None, last)) != place:
            place = end
        return place.bytes

    def newest(self, since: int) -> int:
        """The newest version, which is `since` or a later one."""
        found = self._filesystem.get_file_info(pafs.FileSelector(self._entries))
        names = {info.base_name for info in found}
        version = since
        while entry_name(version + 1) in names:
            version += 1
        return version

    def _read_version(self, version: int) -> tuple[TableFile, ...]:
        return self.added(actions_of(self._content(entry_name(version))), version)

    def added(self, actions: list[dict[str, Any]], version: int) -> tuple[TableFile, ...]:
        """The files with new rows in the entry of a version; raises `InputError`, see the class."""
        for action in actions:
            if "metaData" in action:
                self._require_columns(action["metaData"], version)
        if any(one["remove"].get("dataChange", True) for one in actions if "remove" in one):
            if self._skip_changes:
                return ()
            raise InputError(
                f"version {version} of the table removes or replaces rows",
                where=self._directory,
                expected="versions that append rows",
                remedy='add on_change="skip" to the source, which leaves such versions out as a whole; or '
                "begin after it with from_version, in a new state directory",
            )
        added = [one["add"] for one in actions if "add" in one and one["add"].get("dataChange", True)]
        return tuple(table_file(one, self._directory) for one in added)

    def _require_columns(self, metadata: dict[str, Any], version: int) -> None:
        columns = columns_of(metadata["schemaString"])
        wanted = self._beginning.columns
        changed = [name for name, kind in wanted.items() if columns.get(name) != kind]
        partition_by = tuple(metadata["partitionColumns"])
        mapped = metadata.get("configuration", {}).get("delta.columnMapping.mode", "none") != "none"
        if changed or mapped or partition_by != self._beginning.partition_by:
            raise InputError(
                f"version {version} of the table changes columns that the source reads",
                where=self._directory,
                expected=f"{', '.join(wanted)}, as at the first start",
                got=", ".join(changed) or "other names or partitions",
                remedy="start over from a later version in a new state directory",
            )

    def _require_unborn(self, version: int) -> None:
        """Raise `InputError` if a version that has no entry had one."""
        try:
            checkpoint = json.loads(self._content("_last_checkpoint"))["version"]
        except FileNotFoundError:
            return
        if checkpoint >= version and not self._has(version):
            raise entry_gone(version, self._directory)

    def require_entry(self, version: int) -> None:
        """Raise `InputError` unless the log has the entry of a version that exists."""
        if not self._has(version):
            raise entry_gone(version, self._directory)

    def _has(self, version: int) -> bool:
        path = f"{self._entries}/{entry_name(version)}"
        return bool(self._filesystem.get_file_info(path).type == pafs.FileType.File)

    def _content(self, name: str) -> bytes:
        return read_whole_file(self._filesystem, f"{self._entries}/{name}")


def entry_name(version: int) -> str:
    """The name of a version's entry in the log."""
    return f"{version:020d}.json"


def actions_of(entry: bytes) -> list[dict[str, Any]]:
    """The actions in the content of an entry."""
    return [json.loads(line) for line in entry.splitlines() if line.strip()]


def entry_gone(version: int, where: str) -> InputError:
    """The error for an entry that the table's log had, and has no more."""
    return InputError(
        f"the table's log has no entry of version {version} any more",
        where=where,
        expected=f"the entries of all versions from {version} on",
        remedy="let the table keep its log for longer (delta.logRetentionDuration); start over with "
        "--fresh, from the rows that the table has now",
    )


def columns_of(schema: str) -> dict[str, Any]:
    """The types of columns by name, from the text of a table's schema."""
    return {field["name"]: field["type"] for field in json.loads(schema)["fields"]}


def table_file(add: dict[str, Any], where: str) -> TableFile:
    """The file of an `add` action; raises `InputError` for one with rows that do not count."""
    if add.get("deletionVector"):
        raise InputError(
            "the table marks removed rows in a separate file, which the source cannot read",
            where=where,
            expected="a table without deletion vectors",
            got=add["path"],
            remedy="rewrite the files without removed rows: REORG TABLE … APPLY (PURGE), or OPTIMIZE",
        )
    if "://" in add["path"] or add["path"].startswith("/"):
        raise InputError(
            "a file of the table is not in its directory",
            where=where,
            got=add["path"],
            remedy="read the table of which this one is a clone",
        )
    return TableFile(unquote(add["path"]), add["size"], add.get("partitionValues") or {})
