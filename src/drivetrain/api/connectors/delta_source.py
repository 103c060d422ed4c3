"""The source of rows of a Delta table: the declaration that a user writes.

The problem: a table has rows already, gets more, and is rewritten by compactions, deletions and updates. A
stream has only rows that come.

The design: a source reads the rows of one version, then those that later versions append. A version that only
moves rows to other files adds nothing. A version that removes or replaces rows cannot be expressed in a
stream: it is an error, or is left out if the user allows that.

Invariants:

1. Building a source executes nothing and opens nothing; only the arguments themselves are checked.

Called by applications through `drivetrain.api.sources`; read by the planner and by the adapter.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from typing import ClassVar, Literal, TypeAlias

from drivetrain.errors import GraphError

OnChange: TypeAlias = Literal["fail", "skip"]


@dataclass(frozen=True, kw_only=True)
class DeltaRows:
    """Rows of the Delta table `path`; needs the package's extra `delta`.

    `path` is a directory, or a place in an object store (`s3://bucket/name`), which section `[s3]` of the
    configuration describes.

    Without `from_version`, the source reads the rows that the table has at the first start; with it, the rows
    that this version and later ones have appended. With `watch`, it also reads rows that are appended later.
    A version that removes or replaces rows stops the application, or is left out as a whole with
    `on_change="skip"`. The columns are those that the table has at the first start.

    `event_time` and `max_disorder` have the same meaning as for files.
    """

    path: str
    from_version: int | None = None
    watch: bool = False
    on_change: OnChange = "fail"
    event_time: str | None = None
    max_disorder: str | None = None
    on_bad_record: ClassVar[Literal["fail"]] = "fail"

    def __post_init__(self) -> None:
        if not self.path or ("://" in self.path and not self.path.startswith(("s3://", "hdfs://"))):
            raise _wrong(
                "not a place of a Delta table", "a path, s3://BUCKET/NAME or hdfs://HOST:PORT/NAME", self.path
            )
        if self.from_version is not None and self.from_version < 0:
            raise _wrong("not a version of a table", "0 or more", self.from_version)
        if self.on_change not in ("fail", "skip"):
            raise _wrong("unknown on_change", "fail or skip", self.on_change)

    @property
    def bounded(self) -> bool:
        """True unless the table is watched."""
        return not self.watch

    @property
    def name(self) -> str:
        """The table, as plans and errors show it."""
        return self.path


def _wrong(what: str, expected: str, got: object) -> GraphError:
    return GraphError(what, where="sources.delta", expected=expected, got=repr(got))


def delta(
    path: str | PathLike[str],
    *,
    from_version: int | None = None,
    watch: bool = False,
    on_change: OnChange = "fail",
    event_time: str | None = None,
    max_disorder: str | None = None,
) -> DeltaRows:
    """Rows of a Delta table; see `DeltaRows`. Raises `GraphError` for invalid arguments.

    >>> delta("tables/orders").bounded
    True
    >>> delta("s3://lake/orders", from_version=12, watch=True, event_time="at").bounded
    False
    """
    return DeltaRows(
        path=fspath(path),
        from_version=from_version,
        watch=watch,
        on_change=on_change,
        event_time=event_time,
        max_disorder=max_disorder,
    )
