"""The request for metrics.

Called by `console.routes.table`.
"""

from __future__ import annotations

from starlette.responses import Response

from drivetrain.console.metrics.collector import OPEN_METRICS, PLAIN
from drivetrain.console.route import Call


async def metrics(call: Call) -> Response:
    """The metrics of the cluster and of all applications that run, in the format that the caller reads."""
    format = PLAIN if _reads_only_plain(call.request.headers.get("Accept", "")) else OPEN_METRICS
    return Response(await call.services.metrics.text(format), headers={"Content-Type": format.media_type})


def _reads_only_plain(accepted: str) -> bool:
    """Whether a caller takes Prometheus' older text format, and neither OpenMetrics nor anything."""
    kinds = {part.partition(";")[0].strip().lower() for part in accepted.split(",")}
    return "text/plain" in kinds and not kinds & {"application/openmetrics-text", "*/*"}
