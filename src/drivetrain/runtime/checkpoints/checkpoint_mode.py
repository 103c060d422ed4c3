"""Whether an application takes checkpoints periodically.

Called when an application is submitted or prepared, and by the application master. Imports neither pyspark
nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.api.sinks import needs_transactions
from drivetrain.config.catalog import checkpoint as keys
from drivetrain.core.plan.delivery import AT_MOST_ONCE
from drivetrain.errors import ConfigError
from drivetrain.runtime.state_place import copies_key, copies_place

if TYPE_CHECKING:
    from drivetrain.config import Config
    from drivetrain.core.plan.plan import Plan


def refuse_copies(config: Config) -> None:
    """Raise ConfigError when checkpoints are to be copied beside the state, which a cluster does not do."""
    if config[keys.COPY_TO] != keys.COPY_TO.default:
        raise ConfigError(
            "checkpoints are copied by applications that `drivetrain run` runs",
            where=keys.COPY_TO.name,
            got=config[keys.COPY_TO],
            remedy="leave the key out in a cluster: state.dir may be in an object store; or take savepoints",
        )


def makes_checkpoints(plan: Plan, config: Config) -> bool:
    """Whether `checkpoint.mode` makes them periodic; raises ConfigError where the mode is impossible."""
    mode = config[keys.MODE]
    nodes = plan.graph.nodes.values()
    asked = any((sink := n.operation.target) is not None and needs_transactions(sink) for n in nodes)
    place, named_by = copies_place(config), copies_key(config).name
    if place is not None and mode == "off":
        raise ConfigError(
            "there are no checkpoints that could be copied",
            where=named_by,
            got=f'{keys.MODE.name}="off"',
            remedy=f"leave {keys.MODE.name} out, or {named_by}",
        )
    wanted = mode == "on" or (mode == "auto" and (asked or place is not None))
    obstacle = None
    if plan.delivery == AT_MOST_ONCE:
        obstacle = "the application runs at most once"
    elif any(plan.is_realtime(fragment.id) for fragment in plan.fragments):
        obstacle = "a fragment runs in real-time mode, which has no batches to stop between"
    if wanted and obstacle is not None:
        if mode == "auto" and place is None:
            return False
        raise ConfigError(
            f"checkpoints of the application cannot be made: {obstacle}",
            where=named_by if mode == "auto" else keys.MODE.name,
            expected="no such place" if mode == "auto" else '"auto" or "off"',
            got=f'"{place}"' if mode == "auto" else f'"{mode}"',
            remedy="leave the key out, or change the application",
        )
    return wanted
