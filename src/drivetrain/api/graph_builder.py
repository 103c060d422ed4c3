"""The interface of an application that its streams use."""

from __future__ import annotations

from typing import Any, Protocol

from drivetrain.api.graph import Node


class GraphBuilder(Protocol):
    """An application under construction."""

    name: str
    _nodes: dict[str, Node]

    def _add(self, kind: str, operation: Any, inputs: tuple[str, ...], name: str | None) -> Any:
        """Add a processor and return its stream."""

    def _cut(self, id: str) -> None:
        """Request a channel after a processor."""
