"""Whether an application takes checkpoints periodically.

Called when an application is prepared, and by the application master. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.api.sinks import needs_transactions
from drivetrain.config.catalog import checkpoint as keys
from drivetrain.core.plan.delivery import AT_MOST_ONCE
from drivetrain.errors import ConfigError

if TYPE_CHECKING:
    from drivetrain.config import Config
    from drivetrain.core.plan.plan import Plan


def makes_checkpoints(plan: Plan, config: Config) -> bool:
    """Whether `checkpoint.mode` makes them periodic; raises ConfigError where the mode is impossible."""
    mode = config[keys.MODE]
    nodes = plan.graph.nodes.values()
    asked = any((sink := n.operation.target) is not None and needs_transactions(sink) for n in nodes)
    wanted = mode == "on" or (mode == "auto" and asked)
    obstacle = None
    if plan.delivery == AT_MOST_ONCE:
        obstacle = "the application runs at most once"
    elif any(plan.is_realtime(fragment.id) for fragment in plan.fragments):
        obstacle = "a fragment runs in real-time mode, which has no batches to stop between"
    if wanted and obstacle is not None:
        if mode == "auto":
            return False
        raise ConfigError(
            f"checkpoints of the application cannot be made: {obstacle}",
            where=keys.MODE.name,
            expected='"auto" or "off"',
            got=f'"{mode}"',
            remedy="leave the key out, or change the application",
        )
    return wanted
