"""Compaction of a table: which small files become one, and the outcome; pure.

The problem: an application that writes a batch a second leaves 86,400 files a day, and readers open each.
They can be joined at any time, since a table's readers see only what its log or catalog names; but the
joined files must not be joined again and again.

The design: files of one partition stay in their order, which is mostly that of their writing. Neighbours
become a group until they have the wanted size. A file that nearly has it is left alone.

Invariants:

1. No file is in two groups; a group has at least two files, all of one partition.
2. The files of a group have at most the wanted size together.

Called by the connectors of Delta and Iceberg tables. Source: Iceberg's "rewrite_data_files" (bin packing).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

File = TypeVar("File")

LARGE_ENOUGH = 0.75
"""A file with this share of the wanted size is left alone."""


@dataclass(frozen=True)
class Compaction:
    """What a compaction has done, or would do: how many files, and how many bytes they have.

    `files` and `bytes` are all files of the table before. `written_files` take the place of `replaced_files`;
    if the compaction `is_planned` only, both are an estimate. `overtaken_files` could not be replaced, since
    another writer has replaced or removed them in the meantime.
    """

    table: str
    files: int
    bytes: int
    replaced_files: int = 0
    replaced_bytes: int = 0
    written_files: int = 0
    written_bytes: int = 0
    overtaken_files: int = 0
    is_planned: bool = False


@dataclass(frozen=True)
class Sized(Generic[File]):
    """A file of a table, its size, and its partition."""

    file: File
    size_bytes: int
    partition: Hashable


def groups_of(
    files: Iterable[Sized[File]], target_bytes: int, large_enough: float = LARGE_ENOUGH
) -> list[list[Sized[File]]]:
    """The groups of files that become one file each.

    >>> files = [Sized(name, size, None) for name, size in (("a", 40), ("b", 30), ("c", 90), ("d", 20))]
    >>> [[one.file for one in group] for group in groups_of(files, 100)]
    [['a', 'b', 'd']]
    """
    open_groups: dict[Hashable, list[Sized[File]]] = {}
    closed: list[list[Sized[File]]] = []
    for file in files:
        if file.size_bytes >= large_enough * target_bytes:
            continue
        group = open_groups.setdefault(file.partition, [])
        if total_bytes(group) + file.size_bytes > target_bytes:
            closed.append(group)
            group = open_groups[file.partition] = []
        group.append(file)
    return [group for group in (*closed, *open_groups.values()) if len(group) > 1]


def total_bytes(files: Sequence[Sized[File]]) -> int:
    """The size of several files together."""
    return sum(file.size_bytes for file in files)


def planned(table: str, files: Sequence[Sized[File]], groups: Sequence[Sequence[Sized[File]]]) -> Compaction:
    """What a compaction with these groups would do."""
    replaced_bytes = sum(total_bytes(group) for group in groups)
    return Compaction(
        table=table,
        files=len(files),
        bytes=total_bytes(files),
        replaced_files=sum(len(group) for group in groups),
        replaced_bytes=replaced_bytes,
        written_files=len(groups),
        written_bytes=replaced_bytes,
        is_planned=True,
    )
