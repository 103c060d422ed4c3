"""Requests for the graph of an application.

Called by `console.routes.table`.
"""

from __future__ import annotations

from drivetrain.console.answers.graph import Graph
from drivetrain.console.routes.route import Call


async def graph(call: Call) -> Graph:
    """The graph of an application with coordinates; the same ones each time, so that nothing jumps."""
    view = await call.services.client.application(call.path["app"])
    return await call.services.planning.graph(view.spec)
