"""Checks of a file source before anything starts, each a one-screen error with its remedy.

Called by `open_source`, and by the command line before it starts a JVM, which takes seconds.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.fs as pafs

from drivetrain.api.kafka import Kafka
from drivetrain.api.sources import CsvFiles, FileSource, Generator, JsonLines, ParquetFiles
from drivetrain.errors import InputError
from drivetrain.spark.sources.blocks import first_line, unreadable
from drivetrain.spark.sources.csv_decoder import check_csv_schema, column_names
from drivetrain.spark.sources.json_decoder import check_json_schema
from drivetrain.spark.sources.kafka_reach import validate_kafka
from drivetrain.spark.sources.location import FoundFile, list_files, locate
from drivetrain.spark.sources.parquet_groups import check_file_schema, read_schema

_FILES_CHECKED = 100


def validate_source(source: object) -> None:
    """Check that a file source has something to read, and that a Kafka broker listens; else does nothing.

    Needs no Spark. Raises InputError for a missing path, an empty directory, or files that cannot be
    opened, and UnavailableError for brokers that are not there. (Whether the *content* fits the schema
    shows when it is read, and in `validate_schema`.)
    """
    if isinstance(source, Kafka):
        validate_kafka(source)
    if not isinstance(source, FileSource):
        return
    filesystem, root = locate(source.path)
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


def validate_schema(source: FileSource, found: list[FoundFile], target: pa.Schema) -> None:
    """Check the files' own statements of their columns (CSV headers, Parquet footers) against `target`.

    Looks at the first 100 files; the others are checked when they are read. Raises InputError.
    """
    filesystem, _ = locate(source.path)
    if isinstance(source, JsonLines):
        check_json_schema(target, source.path)
    if isinstance(source, CsvFiles):
        check_csv_schema(target, source.path)
    for file in found[:_FILES_CHECKED]:
        if isinstance(source, CsvFiles) and source.header and file.size_bytes:
            column_names(source, target, first_line(filesystem, file.path), file.path)
        if isinstance(source, ParquetFiles):
            check_file_schema(read_schema(filesystem, file.path), target, file.path)


def validate_generator(source: Generator, where: str) -> None:
    """Check the names of a generator's columns; raises InputError when one is taken."""
    for name in source.columns:
        if name in ("id", "ts"):
            raise InputError(
                f"the generator has a column {name} of its own", where=where, remedy="choose another name"
            )


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
