"""Tables: bounded sources that are read completely, for joins."""

from __future__ import annotations

from typing import get_args

from drivetrain.api.graph_builder import GraphBuilder
from drivetrain.api.location import caller
from drivetrain.api.operations import JoinKind
from drivetrain.errors import GraphError

_OF_STREAMS = get_args(JoinKind)
_WITH_TABLE = ("inner", "left")


class Table:
    """A bounded source that is read completely, for `Stream.join`; returned by `Application.table`.

    >>> sales.join(app.table(sources.parquet("kinds/")), on="item")
    Stream('join')
    """

    def __init__(self, app: GraphBuilder, id: str) -> None:
        self._app = app
        self.id = id


def require_join(how: object, *, is_table: bool) -> None:
    """Raise `GraphError` unless a stream can be joined in this way, with a table or with a stream."""
    known = _WITH_TABLE if is_table else _OF_STREAMS
    if how not in known:
        raise GraphError(
            f"there is no such join with a {'table' if is_table else 'stream'}",
            where=str(caller()),
            expected=" or ".join(f'"{kind}"' for kind in known),
            got=repr(how),
            remedy="choose one of these: a row of a table has no match only once the stream has ended"
            if is_table and how in _OF_STREAMS
            else None,
        )
