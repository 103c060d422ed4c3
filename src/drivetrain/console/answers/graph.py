"""The settings and the graph that an upload would run with.

Called by `console.planning.answers`, which makes these in a process of its own.
"""

from __future__ import annotations

import msgspec

from drivetrain.core.picture.placed_graph import Graph


class ApplicationSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that an application declares; `value` is the one it was planned with (`***` for a secret)."""

    name: str
    kind: str
    value: str | None
    is_required: bool
    description: str


class PlannedUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload as it would run: the name it would have, its settings and its graph.

    `graph` is null for an application with an application master of its own.
    """

    name: str
    settings: tuple[ApplicationSetting, ...]
    graph: Graph | None
