"""Refuses to copy the checkpoints of applications that could not continue from them on another machine.

Called by `preparing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.config.catalog import checkpoint as keys
from drivetrain.errors import ConfigError
from drivetrain.spark.prepare.stored_sources import must_be_stored

if TYPE_CHECKING:
    from drivetrain.api.graph import Graph
    from drivetrain.config import Config
    from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints


def require_copyable(graph: Graph, config: Config, copies: CopiedCheckpoints | None) -> None:
    """Raise ConfigError when checkpoints are to be copied and cannot be, or would not be enough."""
    if config[keys.COPY_TO] == keys.COPY_TO.default:
        return
    if copies is None:
        raise ConfigError(
            "checkpoints are copied by applications that `drivetrain run` runs",
            where=keys.COPY_TO.name,
            got=config[keys.COPY_TO],
            remedy="leave the key out in a cluster, and take savepoints to an object store regularly",
        )
    stored = [node.id for node in graph.nodes.values() if must_be_stored(node.operation.stream_source)]
    if stored:
        raise ConfigError(
            "messages of a source that can be read only once are on the disk of this machine",
            where=keys.COPY_TO.name,
            got=f"source {', '.join(sorted(stored))}",
            remedy="put the messages into Kafka or files, which can be read elsewhere; or leave the key out",
        )
