"""What streams ask of the application that they are part of."""

from __future__ import annotations

from typing import Any, Protocol

from drivetrain.api.graph import Node


class GraphBuilder(Protocol):
    """An application in the making."""

    name: str
    _nodes: dict[str, Node]

    def _add(self, kind: str, operation: Any, inputs: tuple[str, ...], name: str | None) -> Any:
        """Add a processor and return its stream."""

    def _cut(self, id: str) -> None:
        """Ask for a channel after a processor."""
