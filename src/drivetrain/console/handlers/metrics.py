"""The request for metrics.

Called by `console.routes.table`.
"""

from __future__ import annotations

from starlette.responses import Response

from drivetrain.console.metrics.collector import MEDIA_TYPE
from drivetrain.console.routes.route import Call


async def metrics(call: Call) -> Response:
    """The metrics of the cluster and of all applications that run."""
    return Response(await call.services.metrics.text(), headers={"Content-Type": MEDIA_TYPE})
