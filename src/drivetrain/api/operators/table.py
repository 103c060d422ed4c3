"""Tables: bounded sources that are read completely, for joins; and the operations of joins and unions.

Called by `stream` and `application`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from drivetrain.api.durations import milliseconds
from drivetrain.api.graphs.graph_builder import GraphBuilder
from drivetrain.api.location import caller
from drivetrain.api.names import names_of
from drivetrain.api.operations import JoinAsOf, JoinKind, JoinStream, JoinTable, Union
from drivetrain.errors import GraphError

_OF_STREAMS: tuple[JoinKind, ...] = ("inner", "left", "right", "full")
_WITH_TABLE: tuple[JoinKind, ...] = ("inner", "left", "semi", "anti")
_AS_OF: tuple[JoinKind, ...] = ("inner", "left")
_SEMI = 'join an other side that was deduplicated by these columns, with how="inner", and drop its columns'
_ANTI = 'join with how="left", and keep what has no match: .filter("a_column_of_the_other IS NULL")'
_REMEDIES = {
    "outer": 'write "full"',
    "fullouter": 'write "full"',
    "leftouter": 'write "left"',
    "rightouter": 'write "right"',
    "leftsemi": 'write "semi"',
    "leftanti": 'write "anti"',
    "cross": "with a table, join on a column that has the same value everywhere",
}
"""What to use instead of Spark's kinds of joins, by their names without underscores."""
_BETWEEN_STREAMS = {"semi": _SEMI, "leftsemi": _SEMI, "anti": _ANTI, "leftanti": _ANTI}
"""What to use between two streams instead of kinds of joins that only a table has."""


class Table:
    """A bounded source that is read completely, for `Stream.join`; returned by `Application.table`.

    >>> sales.join(app.table(sources.parquet("kinds/")), on="item")
    Stream('join')
    """

    def __init__(self, app: GraphBuilder, id: str, *, refreshed: bool = False) -> None:
        self._app = app
        self.id = id
        self._refreshed = refreshed

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            words = "a table is for joins: stream.join(table, on=...), and operators after that"
            raise AttributeError(f"Table has no {name!r}: {words}")


def union(missing: object) -> Union:
    """The operation that combines streams; raises `GraphError` for another `missing`."""
    if missing not in (None, "null"):
        raise GraphError(
            "union cannot fill missing columns with this",
            where=f"union ({caller()})",
            expected='missing="null", or nothing if all streams have the same columns',
            got=repr(missing),
        )
    return Union(fills=missing is not None)


def join(other: object, on: str | Iterable[str], within: str | None, how: JoinKind) -> JoinTable | JoinStream:
    """The operation that joins a stream with a table or a stream; raises `GraphError` for an invalid join."""
    columns, is_table = names_of(on), isinstance(other, Table)
    _require_join(how, is_table=is_table)
    if isinstance(other, Table):
        return JoinTable(columns, how, other._refreshed)
    if within is None:
        raise GraphError(
            "a join of two streams needs within=",
            where=str(caller()),
            expected='how far apart in event time matches may be, such as within="10 min"',
            got="nothing: the join would have to keep all messages for ever",
        )
    return JoinStream(columns, milliseconds(within, "within"), how)


def _require_join(how: object, *, is_table: bool) -> None:
    """Raise `GraphError` unless a stream can be joined in this way, with a table or with a stream."""
    known = _WITH_TABLE if is_table else _OF_STREAMS
    remedies = _REMEDIES if is_table else _REMEDIES | _BETWEEN_STREAMS
    if how not in known:
        raise GraphError(
            f"there is no such join with a {'table' if is_table else 'stream'}",
            where=str(caller()),
            expected=" or ".join(f'"{kind}"' for kind in known),
            got=repr(how),
            remedy=remedies.get(str(how).replace("_", "").lower())
            or (
                "choose one of these: a row of a table has no match only once the stream has ended"
                if is_table and how in _OF_STREAMS
                else None
            ),
        )


def join_as_of(
    versions: object, on: str | Iterable[str], per: str | Iterable[str], how: JoinKind
) -> JoinAsOf:
    """The operation that joins a stream with versions; raises `GraphError` for an invalid join."""
    if isinstance(versions, Table):
        raise GraphError(
            "a table has no versions",
            where=f"join_as_of ({caller()})",
            expected="a stream with event time, whose messages are the versions",
            remedy="use join(table, on=...) for a table that does not change",
        )
    if not on and not per:
        raise GraphError(
            "join_as_of needs to know which versions replace each other",
            where=f"join_as_of ({caller()})",
            expected='on="column" of both streams, per="column" of the versions, or both',
            got="neither",
        )
    if how not in _AS_OF:
        raise GraphError(
            "there is no such join as of a time",
            where=f"join_as_of ({caller()})",
            expected=" or ".join(f'"{kind}"' for kind in _AS_OF),
            got=repr(how),
        )
    return JoinAsOf(names_of(on), names_of(per), how)
