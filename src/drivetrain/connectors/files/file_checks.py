"""Checks of a file source before anything starts, each a one-screen error with its remedy.

Called by `opened_files`, and by `files.connector` before Spark is started, which takes seconds.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.fs as pafs

from drivetrain.api.sources import CsvFiles, FileSource, JsonLines, ParquetFiles
from drivetrain.connectors.files.blocks import first_line, unreadable
from drivetrain.connectors.files.csv_decoder import check_csv_schema, column_names
from drivetrain.connectors.files.json_decoder import check_json_schema
from drivetrain.connectors.files.parquet_groups import check_file_schema, read_schema
from drivetrain.errors import InputError
from drivetrain.runtime.file_locations import FoundFile, list_files, locate
from drivetrain.runtime.objects.settings import StoreSettings

_FILES_CHECKED = 100


def validate_source(source: FileSource, stores: StoreSettings) -> None:
    """Check that a file source has files to read.

    Needs no Spark. Raises InputError for a missing path, an empty directory, or files that cannot be
    opened. (`validate_schema` and reading the files check whether their *content* fits the schema.)
    """
    filesystem, root = locate(source.path, stores)
    kind = filesystem.get_file_info(root).type
    if kind == pafs.FileType.NotFound:
        raise InputError(
            "there is no such file or directory",
            where=source.path,
            remedy='name the directory and give the pattern as glob="*.csv"'
            if any(char in source.path for char in "*?[")
            else "check the path" + ("; a watched directory must exist" if source.watch else ""),
        )
    if source.watch and kind == pafs.FileType.File:
        raise InputError(
            "a file cannot be watched",
            where=source.path,
            expected="a directory, into which files are moved when they are complete",
            got="a file",
            remedy="name its directory, or drop watch=True to read the file as it is",
        )
    found = list_files(filesystem, root, source.glob)
    if not found and not source.watch:
        raise _nothing_to_read(source, filesystem, root)
    for file in found[:_FILES_CHECKED]:
        _open(filesystem, file)


def validate_schema(
    source: FileSource, found: list[FoundFile], target: pa.Schema, filesystem: pafs.FileSystem
) -> None:
    """Check the columns that the files declare (CSV headers, Parquet footers) against `target`.

    Reads the first 100 files; the others are checked when they are read. Raises InputError.
    """
    if isinstance(source, JsonLines):
        check_json_schema(target, source.path)
    if isinstance(source, CsvFiles):
        check_csv_schema(target, source.path)
    for file in found[:_FILES_CHECKED]:
        if isinstance(source, CsvFiles) and source.header and file.size_bytes:
            column_names(source, target, first_line(filesystem, file.path), file.path)
        if isinstance(source, ParquetFiles):
            check_file_schema(read_schema(filesystem, file.path), target, file.path)


def _open(filesystem: pafs.FileSystem, file: FoundFile) -> None:
    try:
        with filesystem.open_input_file(file.path) as stream:
            stream.read(1)
    except OSError as error:
        raise unreadable(file.path, error) from error


def _nothing_to_read(source: FileSource, filesystem: pafs.FileSystem, root: str) -> InputError:
    everything = list_files(filesystem, root, None)
    if everything:
        got = f"{len(everything)} files, none of which matches {source.glob!r}"
        remedy = "correct the pattern; it is matched against the file's name, not its path"
    else:
        got = "a directory with no file in it (names that start with . or _ do not count)"
        remedy = "put the files there first, or use watch=True to wait for them"
    return InputError(
        "there is no file to read", where=source.path, expected="at least one file", got=got, remedy=remedy
    )
