"""Copies of an application's checkpoints in a run: which applications can have them, and what protects the
results while a former process may still run.

Problem: a machine may be considered lost while its process still runs. That process ends when it cannot
make its next checkpoint, but it may have nothing to save for hours, and then process new messages: results
that it prepares must not be mistaken for those of its successor.

Design: a running process looks every `LOOK_S` for a newer checkpoint than its own, and ends if there is one.
A successor waits twice as long, and then drops whatever was prepared after the checkpoint.

Called by `preparing` and `run_checkpoints`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from drivetrain.api.sources import is_stored_first
from drivetrain.config.catalog import checkpoint as keys
from drivetrain.errors import ConfigError, DrivetrainError
from drivetrain.runtime.checkpoints.checkpoint_mode import refuse_copies
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints, TakenOverError

if TYPE_CHECKING:
    from drivetrain.api.graphs.graph import Graph
    from drivetrain.config import Config

LOOK_S = 5.0


def require_copyable(graph: Graph, config: Config, copies: CopiedCheckpoints | None) -> None:
    """Raise ConfigError when checkpoints are to be copied but cannot be, or when copies would not be
    enough."""
    if config[keys.COPY_TO] == keys.COPY_TO.default:
        return
    if copies is None:
        refuse_copies(config)
    stored = [node.id for node in graph.nodes.values() if is_stored_first(node.operation.stream_source)]
    if stored:
        raise ConfigError(
            "messages of a source that can be read only once are on the disk of this machine",
            where=keys.COPY_TO.name,
            got=f"source {', '.join(sorted(stored))}",
            remedy="put the messages into Kafka or files, which can be read elsewhere; or leave the key out",
        )


def wait_for_predecessor() -> None:
    """Wait until a process that was wrongly considered lost has noticed its successor."""
    time.sleep(2 * LOOK_S)


class ContinuationWatch:
    """Checks whether another process has continued the application, and reports that error once."""

    def __init__(self, copies: CopiedCheckpoints, report: Callable[[BaseException], None]) -> None:
        self._copies: Final = copies
        self._report: Final = report
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, name="copied-checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop checking."""
        self._ends.set()

    def _look(self) -> None:
        while not self._ends.wait(LOOK_S):
            try:
                self._copies.require_newest()
            except TakenOverError as error:
                self._report(error)
                return
            except (DrivetrainError, PermissionError):
                continue  # a store that does not answer: the next checkpoint reports that
