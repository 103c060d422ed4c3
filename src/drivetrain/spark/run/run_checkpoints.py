"""The checkpoints of an embedded run: connects the coordinator with the fragments of one process.

Problem: fragments take part in their own threads, the coordinator is an actor in another, its decisions must
be on disk before any fragment learns of them, and a program in yet another thread wants a savepoint.

Design: the book sends its answers to the actor. Its effects come back on the actor's thread: `Emit` goes
to the fragments with sources, by the book. `figures` and `newest` are plain reads.

Invariants:

1. A record that `wait_made` returns is committed everywhere.
2. Once `have_stopped`, the queries may be stopped: no decision follows that they would have to carry out.
3. If checkpoints are copied, no result is published before its checkpoint is in the store.

Called by `embedded` and `embedded_loop`; programs make savepoints through it.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.checkpoint.coordinator import Completed, Emit
from drivetrain.core.checkpoint.transaction import COORDINATOR, CheckpointRecord, Transaction
from drivetrain.errors import UnavailableError
from drivetrain.runtime.checkpoints.checkpoint_copy import TakenOverError
from drivetrain.runtime.checkpoints.checkpoint_copying import CheckpointCopying
from drivetrain.runtime.checkpoints.continuation_watch import ContinuationWatch, look
from drivetrain.runtime.checkpoints.coordinator_actor import (
    CheckpointActor,
    CheckpointEvent,
    CheckpointHost,
    CheckpointMade,
    CheckpointsStopped,
    RequestCheckpoint,
    SetParticipants,
    StopCheckpoints,
)
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.running_config import RunningConfig
from drivetrain.spark.checkpoints.restoring import mark_damaged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain.runtime.actor_thread import ActorThread
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.run.execution import Execution

_LAST_MS: Final = 60_000
_ANSWER_MS: Final = 10_000
"""How much longer than its own timeout a request may take."""


class RunCheckpoints:
    """The checkpoints of the application `execution`, whose coordinator is an actor of `thread`."""

    def __init__(
        self,
        execution: Execution,
        thread: ActorThread,
        queries: dict[str, FragmentQuery],
    ) -> None:
        self._thread: Final = thread
        self._book: Final = execution.checkpoints
        self._rundir: Final = execution.rundir
        self._files: Final = CheckpointFiles(execution.rundir.home, self._rundir.ownership.require)
        self._has_sources = _with_sources(queries)
        self.are_made: Final = execution.context.transactional
        """Whether checkpoints are made continually."""
        self.figures: CheckpointFigures | None = None
        """The figures for users; None before there are any."""
        self._copies: Final = execution.copies
        self._copying: Final = CheckpointCopying(execution.rundir, execution.copies)
        self._taken_over: BaseException | None = None
        copies = execution.copies
        self._watch = None if copies is None else ContinuationWatch(partial(look, copies), self._take_error)
        self._last: Future[CheckpointMade] | None = None
        self._stopped: Future[CheckpointsStopped] | None = None
        self.notices: Final[deque[str]] = deque()
        """Notices for the user, oldest first; the reader removes them."""
        host = CheckpointHost(
            self._files.transaction,
            self._persist,
            self._take,
            self._take_figures,
            self._take_error,
        )
        config = RunningConfig(execution.rundir.path, execution.context.config)
        self._actor: Final = thread.spawn(
            lambda: CheckpointActor(queries, host, config, periodic=self.are_made), "checkpoints"
        )
        self._book.answer = lambda event: thread.tell(self._actor, CheckpointEvent(event))

    def changed(self, queries: Mapping[str, FragmentQuery]) -> None:
        """These fragments take part from now on: the application has changed while it runs."""
        self._has_sources = _with_sources(queries)
        self._thread.tell(self._actor, SetParticipants(frozenset(queries)))

    def wait_made(self, timeout_ms: int) -> CheckpointRecord:
        """Make a checkpoint now and wait for it; raises UnavailableError if it is not made in time."""
        answer = self._thread.ask(
            self._actor, RequestCheckpoint(timeout_ms), CheckpointMade, timeout_ms=timeout_ms + _ANSWER_MS
        )
        if answer.record is None:
            raise UnavailableError(
                "no checkpoint was taken",
                expected=f"one within {timeout_ms / 1000:g} s",
                got=answer.reason,
                remedy="wait longer; `drivetrain show` displays what delays the checkpoint",
            )
        return answer.record

    def close(self) -> None:
        """Release what belongs to the run."""
        if self._watch is not None:
            self._watch.close()

    def require_own(self) -> None:
        """Raise TakenOverError or LostLockError when another process has continued the application."""
        self._rundir.ownership.require()
        if self._taken_over is not None:
            raise self._taken_over

    def can_go_back(self, fragment: str) -> bool:
        """Mark the state of a fragment as damaged; returns whether there is a checkpoint to go back to."""
        return self.are_made and mark_damaged(self._rundir, fragment)

    def have_stopped(self) -> bool:
        """Whether every checkpoint that was decided is published; for the polling thread, to end a run.

        From the first call on, no other is decided.
        """
        if self._stopped is None:
            self._stopped = self._thread.begin(self._actor, StopCheckpoints(), CheckpointsStopped)
        return self._stopped.done()

    def is_all_published(self) -> bool:
        """Whether all results are published; for the polling thread, once all fragments have finished.

        The first call requests the last checkpoint.
        """
        if not self.are_made:
            return True
        if self._last is None:
            self._last = self._thread.begin(self._actor, RequestCheckpoint(_LAST_MS), CheckpointMade)
        if not self._last.done():
            return False
        if self._last.result().record is None:
            self._last = None  # the user is notified of the obstacle; tried until it is possible
            return False
        return True

    def _take(self, effect: Emit | Completed) -> None:
        if isinstance(effect, Emit):
            for fragment in self._has_sources:
                self._book.tell(fragment, COORDINATOR, effect.command)

    def _persist(self, transaction: Transaction) -> None:
        """Persist a transaction; one whose results are to be published is copied first."""
        self._copying.before(transaction)
        self._files.persist(transaction)

    def _take_error(self, error: BaseException) -> None:
        if isinstance(error, TakenOverError):
            self._taken_over = error
        else:
            self.notices.append(f"checkpoints: {error}")

    def _take_figures(self, figures: CheckpointFigures) -> None:
        place = None if self._copies is None else self._copies.place
        self.figures = msgspec.structs.replace(figures, copied_to=place)


def _with_sources(queries: Mapping[str, FragmentQuery]) -> list[str]:
    return [id for id, query in queries.items() if query.trunk.sources]
