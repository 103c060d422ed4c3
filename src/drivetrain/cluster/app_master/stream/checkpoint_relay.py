"""An application master's part in checkpoints: starts them when all fragments run, and relays messages.

Problem: fragments in different executors answer the coordinator and pass barriers to each other; attempts die
and others follow; users request savepoints before the application has state to save.

Design: one object exists as long as the application master, and knows whether checkpoints have started yet.
`application_checkpoints` makes them; the application master, which knows the executors, relays the messages.

Invariants:

1. There are no checkpoints before all fragments run, nor without copies where these are the state.
2. Executors are informed once when an attempt has moved away from them.

Called by `stream_app_master`, and by `running_job` when fragments run or move.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from drivetrain.actor import ActorRef, Context, Message
from drivetrain.cluster.app_master.app_master_messages import RunAction, Setup
from drivetrain.cluster.app_master.stream.application_checkpoints import (
    ApplicationCheckpoints,
    CheckpointUpdate,
)
from drivetrain.cluster.app_master.stream.application_copies import ApplicationCopies, copies_of
from drivetrain.cluster.app_master.stream.planned_application import PlannedApplication
from drivetrain.cluster.messages.checkpoints import (
    CheckpointAnswered,
    CheckpointCommand,
    FragmentMoved,
    MakeSavepoint,
    SavepointMade,
)
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.config import Config
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.checkpoint.transaction import Command
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.runtime.checkpoints.checkpoint_mode import makes_checkpoints
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.state_place import is_remote


@dataclass(frozen=True)
class CheckpointPort:
    """The functions of the application master that `CheckpointTraffic` needs.

    `relay` sends a message to the executor of a fragment, `tell_others` to all executors but one, `note`
    records errors, `changed` is called when the figures change, `clock_ms` returns the application's clock,
    `is_over` whether it is too late for savepoints; `fail` ends the application.
    """

    relay: Callable[[str, Message], None]
    tell_others: Callable[[str, Message], None]
    note: Callable[[ErrorView], None]
    changed: Callable[[], None]
    clock_ms: Callable[[], int | None]
    is_over: Callable[[], bool]
    fail: Callable[[Exception], None]


class CheckpointTraffic:
    """The checkpoints of one application, for its application master of this epoch."""

    def __init__(self, context: Context, setup: Setup, config: Config, port: CheckpointPort) -> None:
        self._context: Final = context
        self._epoch: Final = setup.epoch
        self._me: Final = Preparer(setup.app_id, setup.epoch, str(context.me.path))
        self._submission: Final = setup.submission
        self._config: Final = config
        self._port: Final = port
        self._made: ApplicationCheckpoints | None = None
        self._copies: ApplicationCopies | None = None
        self._participants: Mapping[str, bool] | None = None
        self._attempts: dict[str, int] = {}  # the newest attempt of each fragment announced to others

    # ---- events

    def prepared(self, planned: PlannedApplication) -> None:
        """An executor has prepared the application, and claimed its state if that is in an object store."""
        system, me = self._context.system, self._context.me

        def taken_over(error: BaseException) -> None:
            if isinstance(error, Exception):
                system.tell_threadsafe(me, RunAction(functools.partial(self._port.fail, error)))

        if self._copies is not None:
            return
        try:
            rundir = planned.rundir(self._config)
            self._copies = copies_of(rundir, self._config, self._me, self._submission, taken_over)
        except DrivetrainError as error:  # such as a secret that is not on this machine
            self._port.fail(error)

    async def close(self, *, has_ended: bool) -> None:
        """Release the state; no process of the application is left if it `has_ended`."""
        if self._copies is not None:
            await self._context.blocking(functools.partial(self._copies.close, has_ended=has_ended))

    def keep(self, files: Mapping[str, bytes]) -> None:
        """Note how the application changes in the store, if its state is there; see `ApplicationCopies.keep`.

        In any thread.
        """
        if self._copies is not None:
            self._copies.keep(files)
        elif is_remote(self._config):
            raise UnavailableError("the application has not begun", remedy="try again")

    def note_change(self) -> None:
        """A change of the application has ended: if the state is in a store, a checkpoint is to have it."""
        if self._made is not None and self._copies is not None:
            self._made.note_change()

    def runs(
        self, fragment: str, attempt: int, planned: PlannedApplication | None, *, do_all_run: bool
    ) -> None:
        """An attempt of a fragment runs; checkpoints start once all fragments do."""
        if self._made is not None:
            if attempt > 1:
                self._made.failed(fragment, "it has started again")
        elif do_all_run and planned is not None and planned.plan is not None and self._can_copy:
            self._made = ApplicationCheckpoints(
                self._context,
                planned,
                planned.plan,
                self._config,
                self._me,
                self._port.clock_ms,
                self._tell_command,
                self._copies,
            )
            if self._participants is not None:
                self._made.changed(self._participants)

    @property
    def _can_copy(self) -> bool:
        """Whether checkpoints are copied if they must be; else nothing may be decided."""
        return self._copies is not None or not is_remote(self._config)

    def changed(self, participants: Mapping[str, bool]) -> None:
        """These fragments take part from now on; the values are whether each has a source."""
        if participants and participants != self._participants:
            self._participants = participants
            if self._made is not None:
                self._made.changed(participants)

    def moved(self, fragment: str, attempt: int, executor: str) -> None:
        """A fragment moves to `executor`; its earlier attempts elsewhere leave checkpoints."""
        if self._attempts.get(fragment, 1) >= attempt or self._made is None:
            return
        self._attempts[fragment] = attempt
        self._port.tell_others(executor, FragmentMoved(self._epoch, fragment))

    def received(self, message: Message) -> bool:
        """Handle a message about checkpoints; False for any other message."""
        match message:
            case CheckpointCommand():
                if message.epoch == self._epoch:
                    self._port.relay(message.fragment, message)
            case CheckpointAnswered():
                if self._made is not None and message.epoch == self._epoch:
                    self._made.answered(message)
            case CheckpointUpdate() if self._made is not None:
                self._made.take(message)
                if message.failed is not None:
                    self._port.note(ErrorView("checkpoints", message.failed))
                self._port.changed()
            case MakeSavepoint():
                if self._context.sender is not None:
                    self._save(message, self._context.sender)
            case _:
                return False
        return True

    def _save(self, message: MakeSavepoint, asker: ActorRef) -> None:
        is_over = self._port.is_over()
        if self._made is not None and not is_over:
            self._made.save(message, asker)
            return
        why = "it is over" if is_over else "it has not begun"
        asker.tell(SavepointMade(ErrorView("unavailable", f"the application cannot be saved now: {why}")))

    def _tell_command(self, fragment: str, input: str, command: Command) -> None:
        self._port.relay(fragment, CheckpointCommand(self._epoch, fragment, input, command))

    # ---- queries

    @property
    def figures(self) -> CheckpointFigures | None:
        """The figures for users; None before the first."""
        return None if self._made is None else self._made.figures

    def may_have_unpublished(self, planned: PlannedApplication) -> bool:
        """Whether finished fragments may have prepared output that is not published yet.

        They may before there are checkpoints, too: a fragment may finish before another one runs.
        """
        if self._made is None:
            return planned.plan is not None and makes_checkpoints(planned.plan, self._config)
        return self._made.may_have_unpublished

    def is_all_published(self, then: Callable[[], None]) -> bool:
        """Whether all output of finished fragments is published; if not, calls `then` once it may be."""
        if self._made is None:
            return self._can_copy
        return self._made.is_all_published(then)
