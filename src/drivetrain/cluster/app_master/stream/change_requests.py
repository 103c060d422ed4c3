"""Changes of an application that clients ask for, until they are recorded or refused.

Design: a change is compiled (`change_compiler`); one at an event time then pauses the fragments that it
concerns (`paused_change`). Only one change at a time gets that far; another is refused by name.

Called by `application_changes`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from drivetrain.cluster.app_master.app_master_messages import RunAction

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.cluster.app_master.stream.change_answers import ChangeRequester
    from drivetrain.cluster.app_master.stream.change_compiler import ChangeCompiler
    from drivetrain.cluster.app_master.stream.paused_change import PausedChange
    from drivetrain.cluster.app_master.stream.stored_versions import CompiledChange
    from drivetrain.cluster.messages.changing import ChangeGraph


class ChangeRequests:
    """Has changes compiled by `proposed`, and their fragments paused by `pause`.

    `refusal` is why no change can begin (None), or why this one cannot be recorded; `refuse` answers a
    client, and `record` records a change for a client.
    """

    def __init__(
        self,
        owner: ApplicationMaster,
        proposed: ChangeCompiler,
        pause: PausedChange,
        refusal: Callable[[CompiledChange | None], Exception | None],
        refuse: Callable[[ChangeRequester, Exception], None],
        record: Callable[[CompiledChange, ChangeRequester], None],
    ) -> None:
        self._owner: Final = owner
        self._proposed: Final = proposed
        self._refusal: Final = refusal
        self._refuse: Final = refuse
        self._record: Final = record
        self.pause: Final = pause
        self.is_compiling = False
        """Whether a change is being compiled, or its fragments pause."""

    def compile(self, message: ChangeGraph, asker: ChangeRequester) -> None:
        """Compile a change that can begin, and record it, or answer why not."""
        self.is_compiling = True
        self._owner.context.pipe_to_self(
            self._proposed.compiled(message),
            lambda compiled: RunAction(partial(self._compiled, compiled, asker)),
            lambda error: RunAction(partial(self._given_up, asker, error)),
        )

    def _compiled(self, compiled: CompiledChange, asker: ChangeRequester) -> None:
        self.is_compiling = False
        error = self._refusal(compiled)
        if error is not None:
            self._refuse(asker, error)
        elif compiled.at is None:
            self._record(compiled, asker)
        else:
            self.is_compiling = True
            self.pause.begin(compiled, partial(self._paused, asker), partial(self._given_up, asker))

    def _paused(self, asker: ChangeRequester, compiled: CompiledChange) -> None:
        """The fragments stand, and the time is known."""
        self.is_compiling = False
        error = self._refusal(compiled)
        if error is None:
            self._record(compiled, asker)
        else:
            self.is_compiling = True
            self.pause.end(error)

    def recorded(self) -> None:
        """The version of the change is recorded."""
        self.pause.recorded()

    def not_recorded(self, error: Exception) -> None:
        """It could not be recorded: its fragments continue, and another change can begin after that."""
        self.is_compiling = self.pause.is_under_way
        self.pause.end(error)

    def _given_up(self, asker: ChangeRequester, error: Exception) -> None:
        self.is_compiling = False
        self._refuse(asker, error)
