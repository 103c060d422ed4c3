"""Changes of an application that clients ask for, until they are recorded or refused.

Design: a change is compiled (`change_compiler`). One with former messages then waits until they are read
(`history_progress`), and its client is answered at once, as that may take hours. One with former messages, or
at an event time, has the fragments that it concerns pause before it is recorded (`paused_change`). Only one
change at a time gets that far; another is refused by name.

Called by `application_changes`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from drivetrain.cluster.app_master.app_master_messages import RunAction
from drivetrain.cluster.app_master.stream.history_progress import HistoryProgress
from drivetrain.cluster.app_master.stream.paused_change import PausedChange
from drivetrain.errors import UnavailableError

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.cluster.app_master.stream.change_answers import ChangeRequester
    from drivetrain.cluster.app_master.stream.change_compiler import ChangeCompiler
    from drivetrain.cluster.app_master.stream.running_job import RunningJob
    from drivetrain.cluster.app_master.stream.stored_versions import CompiledChange, StoredVersions
    from drivetrain.cluster.messages.changing import ChangeGraph, VersionReport


@dataclass(frozen=True)
class RequestSteps:
    """What follows the steps of a request.

    `refusal` is why no change can begin (None), or why this one cannot be recorded; `refuse` answers a
    client. `reading` answers the client of a change whose former messages are being read, and `given_up`
    reports why it did not come into force. `record` records a change, for a client that waits (None: it has
    its answer).
    """

    refusal: Callable[[CompiledChange | None], Exception | None]
    refuse: Callable[[ChangeRequester, Exception], None]
    reading: Callable[[ChangeRequester], None]
    given_up: Callable[[CompiledChange, Exception], None]
    record: Callable[[CompiledChange, ChangeRequester | None], None]


class ChangeRequests:
    """Has changes of the application of `owner`, whose job is `running`, compiled by `proposed`.

    `stored` writes what they wait for.
    """

    def __init__(
        self,
        owner: ApplicationMaster,
        running: RunningJob,
        stored: StoredVersions,
        proposed: ChangeCompiler,
        steps: RequestSteps,
    ) -> None:
        self._owner: Final = owner
        self._proposed: Final = proposed
        self._steps: Final = steps
        self._pause: Final = PausedChange(owner, running, stored)
        self.history: Final = HistoryProgress(owner, running, stored, self._stop)
        """The former messages that the change waits for."""
        self.is_compiling = False
        """Whether a change is being compiled, its former messages are read, or its fragments pause."""
        self._is_answered = False  # the client has its answer, though the change has not begun
        self._is_refused = False  # the change was refused when it was recorded

    @property
    def is_reading(self) -> bool:
        """Whether a change waits for its former messages."""
        return self.is_compiling and self.history.is_under_way

    def compile(self, message: ChangeGraph, asker: ChangeRequester) -> None:
        """Compile a change that can begin, and record it, or answer why not."""
        self.is_compiling = True
        self._owner.context.pipe_to_self(
            self._proposed.compiled(message),
            lambda compiled: RunAction(partial(self._compiled, compiled, asker)),
            lambda error: RunAction(partial(self._refused, asker, error)),
        )

    def _compiled(self, compiled: CompiledChange, asker: ChangeRequester) -> None:
        self.is_compiling = False
        error = self._steps.refusal(compiled)
        if error is not None:
            self._steps.refuse(asker, error)
        elif not compiled.pausing:
            self._steps.record(compiled, asker)
        elif compiled.history is None:
            self.is_compiling = True
            self._pause.begin(compiled, partial(self._paused, asker), partial(self._refused, asker))
        else:
            self.is_compiling, self._is_answered, self._is_refused = True, False, False
            self.history.begin(
                compiled, partial(self._reading, asker), self._near, partial(self._given_up, asker)
            )

    # ---- what a change waits for

    def seen(self, seen: VersionReport) -> None:
        """The report of a fragment's current attempt."""
        self.history.seen(seen)
        self._pause.seen(seen)

    def look(self) -> None:
        """Ask attempts for what a change waits for; continue when it is there."""
        if self.is_reading:
            self.history.look()
        self._pause.look()

    def _reading(self, asker: ChangeRequester) -> None:
        self._is_answered = True
        self._steps.reading(asker)

    def _near(self, compiled: CompiledChange) -> None:
        """Only the newest messages have not been read: the fragments that read have to stand."""
        self._pause.begin(compiled, partial(self._paused, None), self.history.end)

    def _paused(self, asker: ChangeRequester | None, compiled: CompiledChange) -> None:
        """The fragments stand, and the time is known, or all former messages are read."""
        self.is_compiling = False
        error = self._steps.refusal(compiled)
        if error is None:
            self._steps.record(compiled, asker)
        else:
            self.is_compiling = True
            self._pause.end(error)

    def recorded(self) -> None:
        """The version of the change is recorded."""
        self._pause.recorded()
        self.history.recorded()

    def not_recorded(self, error: Exception) -> None:
        """It could not be recorded: its fragments continue, and another change can begin after that."""
        self.is_compiling, self._is_refused = self._pause.is_under_way, True
        self._pause.end(error)

    def cancel(self, number: int) -> bool:
        """Give up the change to version `number`; False if its former messages are not being read."""
        if not self.is_reading or not self.history.is_for(number):
            return False
        self.history.stop(UnavailableError("the change was cancelled", got="before its history was read"))
        return True

    # ---- refusals

    def _stop(self, error: Exception) -> None:
        """The former messages are not read to their end."""
        if self._pause.is_under_way:
            self._pause.end(error)
        else:
            self.history.end(error)

    def _given_up(self, asker: ChangeRequester, compiled: CompiledChange, error: Exception) -> None:
        """Attempts do not read any more."""
        self.is_compiling = False
        if not self._is_answered:
            self._steps.refuse(asker, error)
        elif not self._is_refused:
            self._steps.given_up(compiled, error)

    def _refused(self, asker: ChangeRequester, error: Exception) -> None:
        self.is_compiling = False
        self._steps.refuse(asker, error)
