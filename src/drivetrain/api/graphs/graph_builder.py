"""The interface of an application that its streams use."""

from __future__ import annotations

from typing import Any, Protocol

from drivetrain.api.graphs.graph import Node
from drivetrain.api.location import caller
from drivetrain.errors import GraphError


class GraphBuilder(Protocol):
    """An application under construction."""

    name: str
    _nodes: dict[str, Node]
    _asked: dict[tuple[str, str], str]
    """The processors that are added on demand, by the processor that they belong to and by their kind."""

    def _add(self, kind: str, operation: Any, inputs: tuple[str, ...], name: str | None) -> Any:
        """Add a processor and return its stream."""

    def _cut(self, id: str) -> None:
        """Request a channel after a processor."""


class GraphElement(Protocol):
    """A stream or a table."""

    _app: GraphBuilder
    id: str


def require_of(app: GraphBuilder, *parts: GraphElement) -> None:
    """Raise `GraphError` if one of these is not a stream or a table, or belongs to another application."""
    for part in parts:
        if not hasattr(part, "_app"):
            raise GraphError(
                "not a stream",
                where=str(caller()),
                expected="what app.read(...) or an operator returns",
                got=type(part).__name__,
            )
        if part._app is not app:
            raise GraphError(
                f"{part.id!r} belongs to another application, {part._app.name!r}", where=str(caller())
            )


def require_application(given: object) -> None:
    """Raise `GraphError` unless this is an application."""
    if not hasattr(given, "graph"):
        raise GraphError(
            "not an application",
            where=str(caller()),
            expected="a drivetrain.Application, of which all streams run together",
            got=repr(given),
        )
