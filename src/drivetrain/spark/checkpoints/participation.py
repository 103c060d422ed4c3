"""One fragment's participation in checkpoints, while its query runs: the shell around
`core.checkpoint.barriers.Participant`.

Problem: a query runs its batches in Spark's threads, another thread polls it, and it must be saved between
two batches when its barriers have come. When the coordinator commits, the sinks' prepared results must be
published, which may take as long as a database takes.

Design: commands (from `book`) and events of the query (`ran`) wait in an inbox, whichever thread they come
from. `step` takes one, steps the core and performs its effects in order; `participation_thread` calls it
repeatedly, a simulation whenever it likes. While a snapshot waits for a boundary no other event is taken.

The participation finds a PREPARE that came by a channel in that channel: the reader stops before a barrier
until the file `released` has its round. A process that appends a barrier has its reader look at once, if that
is in the same process; otherwise the reader looks ten times a second while checkpoints are made. A PREPARE
that came as a message, because the channel had already ended, waits until the query has read that channel to
its end.

| effect | action |
|---|---|
| `Hold` | none: the reader stops before the barrier without it |
| `TakeSnapshot` | between two batches: `snapshots`; later effects precede the next batch |
| `Forward` | a barrier in each channel, or a message to its reader |
| `Publish` | the prepared results of all sinks of the application, group by group (`sinks.publishing`) |
| `Release` | the file `released`, which the readers of channels check |
| `Restore` | the whole run ends, to start again from the record (`restoring`) |

If a publication failed because something is unavailable (a database is down), the participation reports that
to the coordinator, which sends COMMIT again; any other failure ends the query.

What if we die here: the snapshot, the barriers and the sinks' prepared results are durable. The next attempt
starts with an empty core, and the coordinator repeats its commands.

Invariants:

1. A snapshot is of one boundary: batch, channels, sources and sinks agree.
2. Nothing is published before the coordinator has decided it.

Called by `participation_thread`, `fragment_driver` and `execution`. Commands come from `participants`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from drivetrain.core.checkpoint.barriers import (
    NO_LIFE,
    Acknowledge,
    CommandArrived,
    Effect,
    Forward,
    Hold,
    InputEnded,
    Participant,
    Publish,
    Refuse,
    Release,
    ReportStateLost,
    Restore,
    Resume,
    RollBack,
    SnapshotFailed,
    SnapshotTaken,
    TakeSnapshot,
)
from drivetrain.core.checkpoint.transaction import (
    COORDINATOR,
    Action,
    ActionFailed,
    BatchesRan,
    CheckpointRecord,
    Command,
    Snapshot,
    StateLost,
)
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.errors import DrivetrainError, InternalError, UnavailableError
from drivetrain.runtime.checkpoints.savepoint import positions_in
from drivetrain.runtime.checkpoints.snapshots import RELEASED, Snapshots, StateFileDamagedError
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.spark.channel.clock_source import publish_clock, read_clock
from drivetrain.spark.checkpoints.boundary import QueryBoundary
from drivetrain.spark.checkpoints.entries import note_entries
from drivetrain.spark.checkpoints.inbox import BatchRan, CheckInputs, CommandReceived, Inbox, News
from drivetrain.spark.checkpoints.restoring import DAMAGED, NO_STATE_YET
from drivetrain.spark.connector.publishing import is_transactional, publish_transaction
from drivetrain.spark.state.available_times import kept_times

if TYPE_CHECKING:
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.checkpoints.participants import CheckpointBook
    from drivetrain.spark.connector.sink import SinkWriter

KEEPER: Final = "@checkpoint"
"""The subscriber name under which the newest record keeps the entries after its barriers."""

FIRST_LIFE: Final = 1
_LOOK_S: Final = 0.1
_REPORT_MS: Final = 200


class RestoreNeededError(DrivetrainError):
    """The application has to go back to its newest checkpoint before it can continue."""

    code = "restore-needed"


class Participation:
    """The participation of one attempt of a fragment; `sinks` are those of the whole application.

    With `transactional` checkpoints are made continually and sinks publish with them; without, checkpoints
    are made only on request, and sinks publish each batch separately.
    """

    def __init__(
        self,
        query: FragmentQuery,
        book: CheckpointBook,
        files: CheckpointFiles,
        sinks: Mapping[str, SinkWriter],
        *,
        transactional: bool,
    ) -> None:
        self.fragment: Final = query.fragment.id
        self._query: Final = query
        self._book: Final = book
        self._files: Final = files
        self._snapshots: Final = Snapshots(files.snapshots)
        self._sinks: Final = sinks
        self._is_transactional: Final = transactional
        self._boundary: Final = QueryBoundary(query)
        self._stateful: Final = query.plan.stateful_operation(query.fragment)
        self._logs: Final = [*query.readers.values(), *(s.store for s in query.trunk.stored.values())]
        self._released: Final = query.directory / RELEASED
        inputs = [*query.readers, *([COORDINATOR] if query.trunk.sources else [])]
        # Its files are of the current life and complete: lost ones were restored before a query was created.
        query.figures.publishes_later = lambda: bool(self._own_sinks())
        self._known: Final = files.transaction()
        present = FIRST_LIFE if self._known is None else self._known.life
        life = files.lives.newest(self.fragment) or present
        saved = max(self._snapshots.rounds(self.fragment), default=0)
        self._core: Final = Participant(self.fragment, inputs, life, saved=saved)
        self._inbox: Final = Inbox()
        self._todo: Final[deque[Effect]] = deque()  # effects in order, after a snapshot that waits
        self._early: list[CommandReceived] = []  # barriers that came as messages, before their channel's end
        self._ended: set[str] = set()
        self._at: dict[str, int] = {}  # the round of the newest barrier that it has come to, by channel
        self._held_s: float | None = None  # since when an input is held, for the figures
        self._has_news = False
        self._reported_ms = -_REPORT_MS
        self._is_over = threading.Event()

    # -- for the query and the book ---------------------------------------------------------------------

    def start(self) -> None:
        """Take part from now on."""
        # Not when it is compiled: an attempt that has not started its query yet has no state to lose.
        (self._query.directory / NO_STATE_YET).unlink(missing_ok=True)
        if self._is_transactional:
            if self._files.lives.newest(self.fragment) == NO_LIFE:
                # Noted before its first batch can be lost: it has begun once others can have its output.
                self._files.lives.note(self.fragment, self._core.life)
            self._keep_behind(None if self._known is None else self._known.record)
        elif self._known is not None:
            for store in self._logs:
                store.forget_subscriber(KEEPER)
        self._book.joins(self)
        self._inbox.put(BatchRan())  # for batches of an earlier attempt

    def ran(self) -> None:
        """The query has run a batch."""
        self._inbox.put(BatchRan())

    def look(self) -> None:
        """There may be a barrier in one of its channels."""
        self._inbox.put(CheckInputs())

    def receive(self, input: str, command: Command) -> None:
        """A command has arrived by an input."""
        self._inbox.put(CommandReceived(input, command))

    def close(self) -> None:
        """Stop taking part; a running step completes."""
        self._is_over.set()
        self._book.leaves(self)
        self._inbox.put(CheckInputs())  # wakes the thread that waits for events

    # -- step by step -------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether it no longer takes part."""
        return self._is_over.is_set()

    def wait_news(self) -> None:
        """Wait until there may be something to do: an event, or a barrier found only by looking."""
        if self._todo:
            return  # a snapshot waits for the boundary
        waits = bool(self._core.held or self._early or self._has_news)
        waits = waits or (self._is_transactional and bool(self._query.readers))
        self._inbox.wait(_LOOK_S if waits else 10 * _LOOK_S)

    def step(self, now_ms: int, wait_s: float = 0.0) -> None:
        """Take one event, if there is any, and perform the resulting effects.

        Waits at most `wait_s` for a boundary; the next step continues waiting.
        """
        if self.is_over:
            return
        try:
            self._do(wait_s)
            if self._todo:
                return
            news = self._inbox.take()
            if news is not None:
                self._take(news, wait_s)
            self._look_at_barriers(wait_s)
            self._report(now_ms)
            self._look_at_ends(wait_s)
        except UnavailableError as error:
            self._todo.clear()
            self._book.answer(ActionFailed(self.fragment, str(error)))
        except BaseException as error:  # noqa: BLE001 - it ends the query, which reports it
            self._is_over.set()
            self._query.fail(error)

    def _take(self, news: News, wait_s: float) -> None:
        match news:
            case BatchRan():
                self._has_news = True
                if self._query.batch_id >= 0:
                    self._files.lives.note_batch(self.fragment)
            case CommandReceived(input, command):
                if command.action is Action.PREPARE and input != COORDINATOR and input not in self._ended:
                    self._early.append(news)
                else:
                    self._step(CommandArrived(input, command), wait_s)

    def _look_at_barriers(self, wait_s: float) -> None:
        """Report barriers that the query has reached without a message about them."""
        for channel, command in self._boundary.barriers().items():
            if self._todo:
                return
            if command.round <= self._at.get(channel, 0):
                continue
            self._at[channel] = command.round
            if command.round > (read_clock(self._released) or 0):
                self._step(CommandArrived(channel, command), wait_s)

    def _look_at_ends(self, wait_s: float) -> None:
        """Report channels read to their end, if a barrier waits for that."""
        if not (self._core.held or self._early):
            return
        for channel in self._query.readers:
            if not self._todo and channel not in self._ended and self._query.inputs.has_read_all(channel):
                self._ended.add(channel)
                self._step(InputEnded(channel), wait_s)
        for early in [early for early in self._early if early.input in self._ended]:
            if self._todo:
                return
            self._early.remove(early)
            self._step(CommandArrived(early.input, early.command), wait_s)

    def _report(self, now_ms: int) -> None:
        """Report to the coordinator that there is something new to save; not for each of many small batches.

        Every batch of any fragment counts: even one that only the clock started may have results.
        """
        if self._has_news and now_ms - self._reported_ms > _REPORT_MS:
            self._has_news, self._reported_ms = False, now_ms
            self._book.answer(BatchesRan(self.fragment))

    # -- effects ------------------------------------------------------------------------------------------

    def _step(self, event: CommandArrived | InputEnded | SnapshotFailed, wait_s: float) -> None:
        self._todo.extend(self._core.step(event))
        self._core.check()
        self._do(wait_s)

    def _do(self, wait_s: float) -> None:
        """Perform the effects in order, until a snapshot has to wait."""
        while self._todo:
            effect = self._todo[0]
            if isinstance(effect, TakeSnapshot) and not self._take_snapshot(effect.command, wait_s):
                return
            self._todo.popleft()
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Hold():
                self._held_s = time.monotonic() if self._held_s is None else self._held_s
            case TakeSnapshot():
                pass
            case Release(round):
                self._held_s = None
                publish_clock(self._released, round)
            case Publish() as publish:
                self._publish(publish)
            case RollBack(_, round):
                self._snapshots.drop(self.fragment, round)
            case Restore():
                raise RestoreNeededError(
                    "the application goes back to its newest checkpoint", where=f"fragment {self.fragment}"
                )
            case Resume(command):
                self._files.lives.note(self.fragment, command.life)
                self._keep_behind(command.record)
            case Forward(command):
                self._forward(command)
            case Acknowledge(ack):
                self._book.answer(ack)
            case Refuse(_, reason):
                self._book.answer(ActionFailed(self.fragment, reason))
            case ReportStateLost(life):
                self._book.answer(StateLost(self.fragment, life, "its checkpoint is lost"))

    def _take_snapshot(self, command: Command, wait_s: float) -> bool:
        """Save the fragment at a boundary; until that is acknowledged no batch begins. False: not yet."""
        if self._held_s is not None:
            self._query.figures.aligned(command.txid, int((time.monotonic() - self._held_s) * 1000))
            self._held_s = None
        with self._boundary.between_batches(wait_s) as is_between:
            if is_between:
                for effect in self._snapshot(command):
                    self._perform(effect)
                return True
        if self._boundary.goes_on:
            return False
        self._todo.extend(self._core.step(SnapshotFailed(command.round, "its query has stopped")))
        return True

    def _snapshot(self, command: Command) -> list[Effect]:
        query, round = self._query, command.round
        sources, channels = self._boundary.positions()
        maybe_crash(CrashPoint.BEFORE_SNAPSHOT)
        query.require_own()
        try:
            note_entries(query.directory, channels, query.readers)
            size = self._snapshots.take(self.fragment, round, query.directory, query.batch_id)
            pictures = kept_times(query.directory, self._stateful, query.batch_id)
        except StateFileDamagedError as damaged:
            if self._is_transactional:
                (query.directory / DAMAGED).touch()
                raise RestoreNeededError(damaged.what, where=damaged.where) from damaged
            return self._core.step(SnapshotFailed(round, str(damaged)))
        except DrivetrainError as error:
            return self._core.step(SnapshotFailed(round, str(error)))
        maybe_crash(CrashPoint.AFTER_SNAPSHOT)
        sinks = dict.fromkeys(self._own_sinks(), self._boundary.last_number)
        snapshot = Snapshot(query.batch_id, sources, channels, sinks, size, pictures)
        effects = self._core.step(SnapshotTaken(round, snapshot))
        self._core.check()
        return effects

    def _own_sinks(self) -> list[str]:
        """The sinks of the fragment that publish with checkpoints; another version of it may have others."""
        own = self._query.branches.sinks
        return [id for id, sink in own.items() if self._is_transactional and is_transactional(sink)]

    def _publish(self, publish: Publish) -> None:
        record = publish.command.record
        if record is None:
            raise InternalError("a transaction is committed without a record", where=self.fragment)
        maybe_crash(CrashPoint.BEFORE_PUBLICATION)
        self._query.require_own()
        if publish.snapshot is not None and publish.snapshot.sinks:
            last = {id: n for snapshot in record.fragments.values() for id, n in snapshot.sinks.items()}
            publish_transaction(self._sinks, record.txid, last, own=publish.snapshot.sinks)
            if self._boundary.is_finished:
                self._query.rolling.finish()
            self._query.figures.published(publish.snapshot.batch_id)
        maybe_crash(CrashPoint.AFTER_PUBLICATION)
        self._snapshots.forget(self.fragment, record.round)
        self._keep_behind(record)

    def _keep_behind(self, record: CheckpointRecord | None) -> None:
        """Have channels keep all after the record, and nothing before; without a record, everything."""
        if not self._is_transactional:
            return
        snapshot = None if record is None else record.fragments.get(self.fragment)
        for channel, store in self._query.readers.items():
            store.record_position(KEEPER, 0 if snapshot is None else snapshot.channels.get(channel, 0))
        positions = {} if snapshot is None else positions_in(snapshot.sources)
        for id, stored in self._query.trunk.stored.items():
            stored.store.record_position(KEEPER, positions.get(id, 0))

    def _forward(self, command: Command) -> None:
        branches = self._query.branches
        for channel in branches.channels:
            if command.action is Action.PREPARE and not self._boundary.is_finished:
                branches.stores[channel.id].append_barrier(command)
                self._book.look(channel.consumer_fragment)
            else:
                self._book.tell(channel.consumer_fragment, channel.id, command)
        self._query.flow.appended()
