"""The interface of an application that its streams use."""

from __future__ import annotations

from typing import Any, Protocol

from drivetrain.api.graph import Node
from drivetrain.api.location import caller
from drivetrain.errors import GraphError


class GraphBuilder(Protocol):
    """An application under construction."""

    name: str
    _nodes: dict[str, Node]

    def _add(self, kind: str, operation: Any, inputs: tuple[str, ...], name: str | None) -> Any:
        """Add a processor and return its stream."""

    def _cut(self, id: str) -> None:
        """Request a channel after a processor."""


class PartOfGraph(Protocol):
    """A stream or a table."""

    _app: GraphBuilder
    id: str


def require_of(app: GraphBuilder, *parts: PartOfGraph) -> None:
    """Raise `GraphError` if one of these belongs to another application."""
    for part in parts:
        if part._app is not app:
            raise GraphError(
                f"{part.id!r} belongs to another application, {part._app.name!r}", where=str(caller())
            )
