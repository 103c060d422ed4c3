"""The history of the current or last change, stored beside its version.

Problem: a change may take long, and another process may finish it. Users want to see where the time went.

Design: a stage is added when it is first reached, and written once the version is recorded. Nothing depends
on the history, so an error in writing it is only a notice.

What if we die here: the last stage is missing, and the next process records that it resumed the change.

Called by `live_changes`, and by application masters.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import Final, Protocol

from drivetrain.core.change.change_events import Event
from drivetrain.core.change.change_stages import ChangeStage, StageName, stage_of
from drivetrain.errors import DrivetrainError


class StageStore(Protocol):
    """Keeps the stages of changes, by version: `GraphVersions`, or an object that writes to it."""

    def stages(self, number: int) -> tuple[ChangeStage, ...]:
        """The stages that are kept; raises InputError when they are damaged."""

    def note_stages(self, number: int, stages: tuple[ChangeStage, ...]) -> None:
        """Keep these stages; raises an error if they cannot be written."""


class ChangeHistory:
    """The stages of a change of an application whose versions are `stored`."""

    def __init__(self, stored: StageStore, notices: deque[str]) -> None:
        self.stages: tuple[ChangeStage, ...] = ()  # replaced as a whole: threads read it
        self._stored: Final = stored
        self._notices: Final = notices
        self._number = 0  # of the version, once it is recorded

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        """Begin the history of a proposed change; if the body raises, restore the previous history."""
        before = self.stages, self._number
        self.stages, self._number = (), 0
        self.reach(StageName.PROPOSED)
        try:
            yield
        except BaseException:
            self.stages, self._number = before
            raise

    def recorded(self, number: int) -> None:
        """Record that the version of the change is in force."""
        self._number = number
        self.reach(StageName.IN_FORCE)

    def resume(self, number: int) -> None:
        """Continue the history of a change that an earlier process began."""
        try:
            self.stages = self._stored.stages(number)
        except DrivetrainError as error:
            self._notices.append(f"the history of version {number} begins anew: {error}")
        self._number = number
        self._add(StageName.RESUMED, "")

    def handed_over(self, number: int) -> None:
        """Record the end of a handover; another change, which was rolled back, may have come in between."""
        if number != self._number:
            self.resume(number)
        self.reach(StageName.HANDED_OVER)

    def saw(self, event: Event) -> None:
        """Record the stage that an event shows, if it shows one."""
        reached = stage_of(event)
        if reached is not None:
            self.reach(*reached)

    def reach(self, stage: str, fragment: str = "") -> None:
        """Record a stage when it is first reached."""
        if not any((one.stage, one.fragment) == (stage, fragment) for one in self.stages):
            self._add(stage, fragment)

    def _add(self, stage: str, fragment: str) -> None:
        self.stages = (*self.stages, ChangeStage(stage, time.time_ns() // 1_000_000, fragment))
        if not self._number:
            return
        try:
            self._stored.note_stages(self._number, self.stages)
        except DrivetrainError as error:
            self._notices.append(f"the history of version {self._number} is not kept: {error}")
