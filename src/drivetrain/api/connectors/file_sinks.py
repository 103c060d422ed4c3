"""The declaration of a file sink, and the functions that make one.

Called by applications, through `drivetrain.sinks`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from os.path import abspath, expanduser
from typing import ClassVar, Literal, TypeAlias

from drivetrain.api.location import caller
from drivetrain.api.names import names_of
from drivetrain.config.references import without_password
from drivetrain.config.units import duration_ms, size_bytes
from drivetrain.errors import GraphError

FileFormat: TypeAlias = Literal["parquet", "csv", "json", "text"]
_ROLLS = {"size_bytes": size_bytes(minimum_bytes=1), "age_ms": duration_ms(minimum_ms=1)}
_FORMATS = ("parquet", "csv", "json", "text")
_COMPRESSIONS = {
    "parquet": ("snappy", "zstd", "gzip", "none"),
    "csv": ("none", "gzip"),
    "json": ("none", "gzip"),
    "text": ("none", "gzip"),
}


@dataclass(frozen=True)
class RollingPolicy:
    """A file is closed when it reaches `size_bytes`, or when its oldest message has waited for `age_ms`."""

    size_bytes: int = 128 * 2**20
    age_ms: int = 600_000


@dataclass(frozen=True, kw_only=True)
class FileSink:
    """Writes one file per non-empty batch into one directory; an atomic rename publishes it whole.

    `path` is a directory or a pyarrow file system URI; it must be missing, empty, or owned by this
    application. `format` is `parquet`, `csv` (RFC 4180, with a `header` line in every file), `json` (one
    object per line) or `text` (exactly one string column, one line per message). Timestamps in CSV and JSON
    are ISO 8601 in UTC. By default, `compression` is `snappy` for Parquet and `none` for the others. Sinks of
    one application with the same `together`, a directory above all of them, publish in one step for readers
    that use `published_files`. With `roll`, a file holds many batches, and becomes visible when it is closed.
    With `partition_by`, files are in one directory for each combination of values of these columns, such as
    `country=FR/day=2024-05-01`, and do not contain them.
    """

    path: str
    format: FileFormat = "parquet"
    header: bool = True
    compression: str | None = None
    together: str | None = None
    roll: RollingPolicy | None = None
    partition_by: tuple[str, ...] = ()
    guarantee: ClassVar[Literal["exactly once"]] = "exactly once"

    def __post_init__(self) -> None:
        if not self.path:
            raise GraphError(
                "a file sink needs a path", where="sinks.files", remedy="give a directory or a URI"
            )
        if self.format not in _FORMATS:
            raise GraphError(
                "unknown file format",
                where="sinks.files",
                expected=", ".join(_FORMATS),
                got=repr(self.format),
            )
        if self.compression is not None and self.compression not in _COMPRESSIONS[self.format]:
            raise GraphError(
                f"unknown compression for {self.format}",
                where="sinks.files",
                expected=", ".join(_COMPRESSIONS[self.format]),
                got=repr(self.compression),
            )
        if len(set(self.partition_by)) < len(self.partition_by):
            raise GraphError(
                "partition_by has each column once",
                where="sinks.files",
                expected="different columns",
                got=", ".join(self.partition_by),
            )
        if self.together is not None and not _is_below(self.path, self.together):
            raise GraphError(
                "sinks that publish together must be below their common directory",
                where="sinks.files",
                expected=f"a path below {self.together}",
                got=self.path,
                remedy="give a directory that is above all of these sinks",
            )
        if self.together is not None and self.roll is not None:
            raise GraphError(
                "sinks that publish together close their files with each checkpoint",
                where="sinks.files",
                expected="together, or roll",
                got="both",
                remedy="leave roll out, and set checkpoint.interval",
            )


def _is_below(path: str, above: str) -> bool:
    if "://" not in path:
        path, above = abspath(expanduser(path)), abspath(expanduser(above))
    return path.rstrip("/").startswith(above.rstrip("/") + "/")


def files(
    path: str | PathLike[str],
    format: FileFormat = "parquet",
    *,
    header: bool = True,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
    roll: str | tuple[str, str] | None = None,
    partition_by: str | Sequence[str] = (),
) -> FileSink:
    """Write files in `path`, one per batch, exactly once; see `FileSink`.

    With `roll`, many batches become one file, which is closed when it reaches a size or an age, whichever
    comes first: "128 MiB" (or 10 minutes), "1 h" (or 128 MiB), ("1 GiB", "1 h").

    >>> files("out/", format="csv").format
    'csv'
    >>> files("out/", roll="64 MiB").roll
    RollingPolicy(size_bytes=67108864, age_ms=600000)
    >>> files("out/", partition_by="country").partition_by
    ('country',)
    """
    return FileSink(
        path=without_password(fspath(path)),
        format=format,
        header=header,
        compression=compression,
        together=None if together is None else without_password(fspath(together)),
        roll=None if roll is None else _rolls(roll),
        partition_by=names_of(partition_by),
    )


def _rolls(roll: str | tuple[str, str]) -> RollingPolicy:
    """The limits of a file: a size, a duration, or both."""
    given: dict[str, int] = {}
    limits = (roll,) if isinstance(roll, str) else tuple(roll)
    for limit in limits:
        for name, parser in _ROLLS.items():
            with contextlib.suppress(ValueError):
                given[name] = parser.read(limit)
    if not limits or len(given) != len(limits):
        raise GraphError(
            "cannot read when to close files",
            where=str(caller()),
            expected='a size, a duration, or both: "128 MiB", "10 min", ("1 GiB", "1 h")',
            got=repr(roll),
            remedy="write a number and its unit",
        )
    return RollingPolicy(**given)


def parquet(
    path: str | PathLike[str],
    *,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
    roll: str | tuple[str, str] | None = None,
    partition_by: str | Sequence[str] = (),
) -> FileSink:
    """Write Parquet files; shorthand for `files(path, format="parquet")`.

    >>> parquet("out/", compression="zstd").format
    'parquet'
    """
    return files(
        path, "parquet", compression=compression, together=together, roll=roll, partition_by=partition_by
    )


def csv(
    path: str | PathLike[str],
    *,
    header: bool = True,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
    roll: str | tuple[str, str] | None = None,
    partition_by: str | Sequence[str] = (),
) -> FileSink:
    """Write CSV files; shorthand for `files(path, format="csv")`.

    >>> csv("out/", header=False).header
    False
    """
    return files(
        path,
        "csv",
        header=header,
        compression=compression,
        together=together,
        roll=roll,
        partition_by=partition_by,
    )


def json(
    path: str | PathLike[str],
    *,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
    roll: str | tuple[str, str] | None = None,
    partition_by: str | Sequence[str] = (),
) -> FileSink:
    """Write JSON lines files; shorthand for `files(path, format="json")`.

    >>> json("out/", roll="1 h").roll.age_ms
    3600000
    """
    return files(
        path, "json", compression=compression, together=together, roll=roll, partition_by=partition_by
    )


def text(
    path: str | PathLike[str],
    *,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
    roll: str | tuple[str, str] | None = None,
    partition_by: str | Sequence[str] = (),
) -> FileSink:
    """Write text files from one string column; shorthand for `files(path, format="text")`.

    >>> text("out/", compression="gzip").compression
    'gzip'
    """
    return files(
        path, "text", compression=compression, together=together, roll=roll, partition_by=partition_by
    )
