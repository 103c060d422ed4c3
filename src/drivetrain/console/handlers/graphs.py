"""Requests for the graph of an application.

Called by `console.routes.table`.
"""

from __future__ import annotations

from drivetrain.console.route import Call
from drivetrain.core.picture.placed_graph import Graph


async def graph(call: Call) -> Graph:
    """The graph of an application with coordinates; the same ones each time, so that nothing jumps."""
    view = await call.services.client.application(call.path["app"])
    return await call.services.graph_of(view)
