"""The scaling of a fragment in its attempt: reads what is wanted, has it done, and reports its state.

Design: the file of `runtime.wanted_scaling` has what is wanted; the checkpoint shows whether an attempt that
has died since has done it. The report is sent with what the attempt has seen of the versions, again and
again.

What if we die here: the next attempt of the fragment settles the checkpoint, and continues with the file.

Invariants:

1. A query that was drained for a scaling is followed by another one, whatever happens to the file.

Called by `attempt_versions`, in the attempt's thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from drivetrain.core.change.scaling_state import ScalingStage, ScalingState
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.state.state_partitions import state_partitions
from drivetrain.spark.run.divided_fragment import DividedFragment

if TYPE_CHECKING:
    from drivetrain.runtime.wanted_scaling import WantedScalingFile
    from drivetrain.spark.batch.query_engine import QueryEngine
    from drivetrain.spark.run.fragment_driver import FragmentDriver

log = logging.getLogger(__name__)


class AttemptScaling:
    """Scales the fragment that `driver` drives, with Spark as `engine`, when `file` asks for that."""

    def __init__(self, file: WantedScalingFile, engine: QueryEngine, driver: FragmentDriver) -> None:
        self._file: Final = file
        self._engine: Final = engine
        self._driver: Final = driver
        self._mark: int | None = None
        self._divided: DividedFragment | None = None
        self._ended: ScalingState | None = None

    @property
    def state(self) -> ScalingState | None:
        """The state of the wanted scaling; None without one."""
        return self._ended if self._divided is None else self._divided.state

    def look(self, mark: int, *, is_restarting: bool) -> None:
        """Take the next step; the file is read when `mark` has changed.

        `is_restarting`: the query has to restart for another version first.
        """
        if mark != self._mark and self._divided is None:
            self._mark = mark
            try:
                self._read()
            except DrivetrainError as error:
                log.warning("whether %s is to be scaled cannot be read: %s", self._driver.fragment, error)
        divided = self._divided
        if divided is None or (is_restarting and divided.state.stage is ScalingStage.WAITING):
            return
        divided.step(self._driver)
        if divided.state.is_over:
            log.info("%s", divided.state.in_words)
            self._ended, self._divided = divided.state, None

    def _read(self) -> None:
        wanted = self._file.read()
        if wanted is None or wanted.state.fragment != self._driver.fragment:
            self._ended = None
            return
        state, before = wanted.state, self._ended
        if before is not None and before.id == state.id:
            return
        if state_partitions(self._driver.query.checkpoint) == state.after:  # an earlier attempt has done it
            self._ended = state.drained().ended()
        else:
            self._divided = DividedFragment(self._engine, state)
