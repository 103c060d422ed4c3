"""Tables: bounded sources that are read completely, for joins."""

from __future__ import annotations

from drivetrain.api.graph_builder import GraphBuilder


class Table:
    """A bounded source that is read completely, for `Stream.join`; returned by `Application.table`.

    >>> sales.join(app.table(sources.parquet("kinds/")), on="item")
    Stream('join')
    """

    def __init__(self, app: GraphBuilder, id: str) -> None:
        self._app = app
        self.id = id
