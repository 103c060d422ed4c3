"""The checkpoints of an application in a cluster: connects its executors, state directory and coordinator.

Problem: the coordinator must outlive every executor, and the next application master must find its decisions;
the fragments that answer it run in other processes, and move between them.

Design: the coordinator is a child of the application master (`runtime.checkpoints.coordinator_actor`),
started once the application is prepared. It persists its records in the application's state directory, next
to all other parts of a checkpoint: the application master must be able to reach that directory, like the
executors. Commands go to the fragments with sources; the application master relays commands between
executors.

If this process dies at any point, the next application master recovers from the persisted records.

Invariants:

1. The job is not concluded before everything is published (`is_all_published`).
2. An application master that another one has replaced changes no record.

Called by `checkpoint_relay`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.actor import ActorRef, AskError, Context, Message
from drivetrain.cluster.app_master.app_master_messages import RunAction
from drivetrain.cluster.app_master.stream.application_copies import ApplicationCopies
from drivetrain.cluster.app_master.stream.planned_application import PlannedApplication
from drivetrain.cluster.messages.checkpoints import CheckpointAnswered, MakeSavepoint, SavepointMade
from drivetrain.config import Config
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.checkpoint.coordinator import Completed, Emit
from drivetrain.core.checkpoint.transaction import (
    COORDINATOR,
    ActionFailed,
    BatchesRan,
    CheckpointRecord,
    Command,
    ParticipantEvent,
    Transaction,
)
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import UnavailableError
from drivetrain.runtime.checkpoints.checkpoint_mode import makes_checkpoints
from drivetrain.runtime.checkpoints.coordinator_actor import (
    CheckpointActor,
    CheckpointEvent,
    CheckpointHost,
    CheckpointMade,
    RequestCheckpoint,
    SetParticipants,
)
from drivetrain.runtime.checkpoints.savepoint import write_savepoint
from drivetrain.runtime.checkpoints.stored_savepoint import uploaded_to
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.error_views import error_view
from drivetrain.runtime.objects.locations import is_in_object_store
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.running_config import RunningConfig

_LAST_MS: Final = 60_000
_AGAIN_MS: Final = 5_000
_ANSWER_MS: Final = 10_000
"""How much longer than its own timeout a request may take."""


class CheckpointUpdate(Message, frozen=True, tag="dt.local.app.checkpoint-news"):
    """A command to send, new figures, or an error, from the coordinator."""

    command: Command | None = None
    figures: CheckpointFigures | None = None
    failed: str | None = None


class ApplicationCheckpoints:
    """The checkpoints of the planned application; `clock_ms` returns the application's clock.

    `me` is the application master as the state directory notes it; another one's decisions are not replaced.
    `tell(fragment, input, command)` sends a command to a fragment, by one of its inputs. If `copies` are the
    application's state, checkpoints are copied before they are decided.
    """

    def __init__(
        self,
        context: Context,
        planned: PlannedApplication,
        plan: Plan,
        config: Config,
        me: Preparer,
        clock_ms: Callable[[], int | None],
        tell: Callable[[str, str, Command], None],
        copies: ApplicationCopies | None = None,
    ) -> None:
        self._context: Final = context
        self._tell: Final = tell
        self._clock_ms: Final = clock_ms
        self._rundir: Final = planned.rundir(config)
        self._config: Final = config
        self._has_sources = [
            f.id
            for f in plan.fragments
            if any(plan.graph.nodes[id].operation.stream_source is not None for id in f.processors)
        ]
        self.are_made: Final = makes_checkpoints(plan, config)
        """Whether checkpoints are made periodically."""
        self.figures: CheckpointFigures | None = None
        """The figures for users; None before the first."""
        self._is_all_published = not self.are_made
        self._is_last_wanted = False
        files = CheckpointFiles(self._rundir.home)
        owner = context.me

        def persist(transaction: Transaction) -> None:
            with self._rundir.preparation.while_prepared_by(me):
                if copies is not None:
                    copies.before(transaction)
                files.persist(transaction)

        host = CheckpointHost(
            files.transaction,
            persist,
            lambda effect: self._take(effect, owner),
            lambda figures: owner.tell(CheckpointUpdate(figures=_shown(figures, copies))),
            lambda error: owner.tell(CheckpointUpdate(failed=str(error))),
        )
        fragments = self._fragments = [f.id for f in plan.fragments]
        running = RunningConfig(self._rundir.path, config)
        self._actor: Final = context.spawn(
            lambda: CheckpointActor(fragments, host, running, periodic=self.are_made), "checkpoints"
        )

    # ---- events

    def note_change(self) -> None:
        """The application has changed, so a checkpoint has something new, whether or not batches run."""
        for fragment in self._fragments[:1]:
            self._actor.tell(CheckpointEvent(BatchesRan(fragment)))

    def changed(self, participants: Mapping[str, bool]) -> None:
        """These fragments take part from now on; the values are whether each has a source."""
        self._has_sources = [id for id, has_source in participants.items() if has_source]
        self._actor.tell(SetParticipants(frozenset(participants)))

    def answered(self, message: CheckpointAnswered) -> None:
        """A fragment has answered."""
        answers = (message.acked, message.failed, message.lost)
        events: list[ParticipantEvent] = [answer for answer in answers if answer is not None]
        if message.has_run:
            events.append(BatchesRan(message.fragment))
        for event in events:
            self._actor.tell(CheckpointEvent(event))

    def failed(self, fragment: str, why: str) -> None:
        """An attempt of a fragment has failed, and another follows."""
        self._is_all_published = not self.are_made
        self._actor.tell(CheckpointEvent(ActionFailed(fragment, why)))

    def take(self, news: CheckpointUpdate) -> None:
        """Handle news from the coordinator."""
        if news.command is not None:
            for fragment in self._has_sources:
                self._tell(fragment, COORDINATOR, news.command)
        if news.figures is not None:
            self.figures = news.figures

    @property
    def may_have_unpublished(self) -> bool:
        """Whether finished fragments may have prepared output that is not published yet."""
        return not self._is_all_published

    def is_all_published(self, then: Callable[[], None]) -> bool:
        """Whether the output of fragments is published; for use once all of them have finished.

        If not, requests a checkpoint and afterwards calls `then`, which should ask again.
        """
        if not self._is_all_published and not self._is_last_wanted:
            self._is_last_wanted = True
            self._context.pipe_to_self(
                self._actor.ask(
                    RequestCheckpoint(_LAST_MS), CheckpointMade, timeout_ms=_LAST_MS + _ANSWER_MS
                ),
                lambda made: RunAction(functools.partial(self._made_last, made.record, then)),
                lambda _: RunAction(functools.partial(self._ask_later, then)),
            )
        return self._is_all_published

    def _made_last(self, record: CheckpointRecord | None, then: Callable[[], None]) -> None:
        self._is_last_wanted = False
        self._is_all_published = record is not None
        then()  # without a record `then` requests another; the figures show what delays it

    def _ask_later(self, then: Callable[[], None]) -> None:
        """Ask later: the coordinator does not answer, or has failed too often and would refuse at once."""
        again = RunAction(functools.partial(self._made_last, None, then))
        self._context.timers.start_once("last checkpoint", again, delay_ms=_AGAIN_MS)

    def save(self, message: MakeSavepoint, asker: ActorRef) -> None:
        """Make a savepoint; the asker gets `SavepointMade` when it is complete or has failed."""
        loop, ask = asyncio.get_running_loop(), self._actor.ask
        want, timeout_ms = RequestCheckpoint(message.timeout_ms), message.timeout_ms + _ANSWER_MS

        def make() -> CheckpointRecord:
            asked = asyncio.run_coroutine_threadsafe(ask(want, CheckpointMade, timeout_ms=timeout_ms), loop)
            try:
                made = asked.result()
            except AskError as error:
                raise _no_checkpoint(message.timeout_ms, str(error)) from error
            if made.record is None:
                raise _no_checkpoint(message.timeout_ms, made.reason)
            return made.record

        def write() -> None:
            where: AbstractContextManager[Path] = nullcontext(Path(message.place))
            if is_in_object_store(message.place):
                where = uploaded_to(message.place, self._config)
            with where as directory:
                write_savepoint(self._rundir, directory, make, self._clock_ms)

        writing = self._context.blocking(write)
        self._context.pipe_to_self(
            writing,
            lambda _: RunAction(lambda: asker.tell(SavepointMade())),
            lambda error: RunAction(lambda: asker.tell(SavepointMade(error_view(error)))),
        )

    def _take(self, effect: Emit | Completed, me: ActorRef) -> None:
        if isinstance(effect, Emit):
            me.tell(CheckpointUpdate(command=effect.command))


def _shown(figures: CheckpointFigures, copies: ApplicationCopies | None) -> CheckpointFigures:
    return msgspec.structs.replace(figures, copied_to=None if copies is None else copies.place)


def _no_checkpoint(timeout_ms: int, why: str) -> UnavailableError:
    return UnavailableError(
        "no checkpoint was taken",
        expected=f"one within {timeout_ms / 1000:g} s",
        got=why,
        remedy="wait longer; `drivetrain show` displays what delays the checkpoint",
    )
