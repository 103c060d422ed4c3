"""Work on a table that is done again while commits of others come first.

Called by the sinks of tables and by compactions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from drivetrain.connectors.tables.table_target import ConflictError, TableTarget
from drivetrain.runtime.growing_pauses import GrowingPauses

log = logging.getLogger("drivetrain.tables")

Result = TypeVar("Result")

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0


def repeated(work: Callable[[], Result], target: TableTarget, timeout_ms: int, change: str) -> Result:
    """The result of `work`, repeated for `timeout_ms` while it raises `ConflictError`.

    Raises `UnavailableError` afterwards, which names the `change`: "the batch".
    """
    pauses = GrowingPauses(timeout_ms / 1000, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
    while True:
        try:
            return work()
        except ConflictError as error:
            if pauses.are_over:
                raise target.busy(error, change) from error
            log.info("%s: %s; looking again", target.where, error)
        pauses.wait()
