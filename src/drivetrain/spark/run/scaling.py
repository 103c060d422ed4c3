"""The scalings of an embedded run: divides the state of a fragment again while all others keep running.

Problem, stages and invariants: see `core.change.scaling_state`; `divided_fragment` takes the steps.

Design: `propose` checks in its caller's thread. The loop calls `look`.

Called by `live_changes`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from drivetrain.core.change.scaling_state import PlannedScaling, ScalingState, planned_scaling
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.scalings import Scalings
from drivetrain.spark.run.divided_fragment import DividedFragment
from drivetrain.spark.run.scaling_checks import checked_scaling, named_fragment

if TYPE_CHECKING:
    from drivetrain.spark.run.execution import Execution
    from drivetrain.spark.run.fragment_driver import FragmentDriver


class Scaling:
    """The scalings of the application `execution`, whose fragments `drivers` drive, by id.

    `reserved` is held from the first look at a change, or a scaling, until it has ended.
    """

    def __init__(
        self, execution: Execution, drivers: Mapping[str, FragmentDriver], reserved: threading.Lock
    ) -> None:
        assert execution.versions is not None, "an application that cannot change"
        self._versions: Final = execution.versions
        self._engine: Final = execution.engine
        self._drivers: Final = drivers
        self._reserved: Final = reserved
        self._scalings: Final = Scalings(execution.rundir.path)
        self.state: ScalingState | None = None
        """The current or last scaling; replaced as a whole, since other threads read it."""
        self._divided: DividedFragment | None = None  # of the current one

    def propose(self, name: str, partitions: int, refuse: Callable[[], None]) -> ScalingState:
        """Begin to scale a fragment, named by its id or by a processor in it; returns its state.

        `refuse` raises an error while something else is under way. Raises UserError when scaling is
        impossible.
        """
        if not self._reserved.acquire(blocking=False):
            refuse()
        try:
            state = self._checked(name, partitions)
        except BaseException:
            self._reserved.release()
            raise
        self.state, self._divided = state, DividedFragment(self._engine, state)
        return state

    def planned(self, name: str, partitions: int) -> PlannedScaling:
        """What scaling a fragment would do; changes nothing. Raises UserError when it is impossible."""
        state = self._checked(name, partitions)
        return planned_scaling(state, [scaled.of for scaled in self._scalings.all()])

    def _checked(self, name: str, partitions: int) -> ScalingState:
        plan = self._versions.in_force.plan
        fragment = named_fragment(plan, self._drivers, name)
        return checked_scaling(plan, fragment, self._drivers[fragment.id], partitions)

    # -- for the thread that polls -----------------------------------------------------------------------

    def look(self) -> None:
        """Take the next step of the scaling that is under way."""
        divided = self._divided
        if divided is None:
            return
        divided.step(self._drivers.get(divided.state.fragment))
        if divided.state.is_over:
            self._end(divided.state)
        else:
            self.state = divided.state

    def _end(self, ended: ScalingState) -> None:
        if ended.why is None:
            try:
                self._scalings.note(ended)
            except DrivetrainError as error:
                self._versions.notices.append(f"the scaling is done, and not in the list: {error}")
        self._versions.notices.append(ended.in_words)
        self.state, self._divided = ended, None
        self._reserved.release()
