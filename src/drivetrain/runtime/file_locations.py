"""Locations of files: a path or URI as a pyarrow file system, and the files below it.

The problem: applications name local paths and object-store URIs alike, and a directory that is read
while others write to it contains files that are not meant for readers yet.

Invariants:

1. A name that starts with `.` or `_`, anywhere below the root, is never listed: writers stage there.
2. Listing has a fixed order: by path for `list_files`, so that the same files give the same input.

Called by the file log, by validation and by the sinks.
"""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass

import pyarrow.fs as pafs

from drivetrain.config.references import without_password
from drivetrain.errors import InputError
from drivetrain.runtime.objects.locations import is_in_object_store, locate_object
from drivetrain.runtime.objects.settings import StoreSettings

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


@dataclass(frozen=True)
class FoundFile:
    """A file as it was when it was first seen; `path` is the file system's own, without a scheme."""

    path: str
    size_bytes: int
    mtime_ms: int = 0


def locate(path_or_uri: str, stores: StoreSettings | None = None) -> tuple[pafs.FileSystem, str]:
    """The file system and the path inside it; local paths are made absolute.

    `stores` determines how object stores are reached; None: by the environment's settings. Raises InputError
    when the URI's scheme is unknown or its file system cannot be set up.
    """
    if is_in_object_store(path_or_uri):
        return locate_object(without_password(path_or_uri), stores or StoreSettings())
    if "://" not in path_or_uri:
        return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(path_or_uri))
    found: tuple[pafs.FileSystem, str]
    try:
        found = pafs.FileSystem.from_uri(without_password(path_or_uri))
    except (ValueError, OSError) as error:
        raise InputError(
            "the location cannot be opened",
            where=path_or_uri,
            expected="a path, a place such as s3://bucket/name, or a URI of a file system that pyarrow knows",
            got=str(error),
            remedy="check the scheme and the credentials",
        ) from error
    return found


def compression_of(path: str) -> str | None:
    """The compression that a file's name implies, or None."""
    return _COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def list_files(filesystem: pafs.FileSystem, root: str, glob: str | None) -> list[FoundFile]:
    """The readable files at or under `root` whose name matches `glob`, ordered by path.

    Returns an empty list when `root` does not exist. A file given directly is returned whatever its name.
    """
    info = filesystem.get_file_info(root)
    if info.type == pafs.FileType.File:
        return [_found(info)]
    if info.type == pafs.FileType.NotFound:
        return []
    selector = pafs.FileSelector(root, recursive=True, allow_not_found=True)
    prefix = len(root.rstrip("/")) + 1
    found = [
        _found(entry)
        for entry in filesystem.get_file_info(selector)
        if entry.type == pafs.FileType.File
        and not _is_hidden(entry.path[prefix:])
        and (glob is None or fnmatch.fnmatchcase(entry.base_name, glob))
    ]
    return sorted(found, key=lambda file: file.path)


def _found(info: pafs.FileInfo) -> FoundFile:
    mtime_ms = int(info.mtime_ns // 1_000_000) if info.mtime_ns is not None else 0
    return FoundFile(info.path, int(info.size), mtime_ms)


def _is_hidden(relative: str) -> bool:
    return any(part.startswith((".", "_")) for part in relative.split("/"))
