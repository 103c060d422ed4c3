"""One fragment's part in checkpoints, while its query runs: the shell around
`core.checkpoint.barriers.Participant`.

Problem: a query runs its batches in Spark's threads, is looked at by a thread that polls, and must be saved
between two batches when its barriers have come; what sinks have prepared must be published when it is
decided, which may take as long as a database takes.

Design: one thread, that takes commands (from `book`) and news of the query (`ran`), steps the core and does
its effects in order. A PREPARE that came by a channel is found in the channel: the reader stands in front
of a barrier until `Release` says its round in the file `released`. Who writes it has its reader look at once,
if that is in this process; else it is looked for ten times a second while checkpoints are made. One that came
as a word, because the channel had ended already, waits until the query has read that channel to its end.

| effect | what is done |
|---|---|
| `Hold` | nothing: the reader stands in front of the barrier by itself |
| `TakeSnapshot` | between two batches: `snapshots`; what follows is done before the next batch begins |
| `Forward` | a barrier in each channel, or a word to who reads it |
| `Publish` | what the sinks of the whole application have prepared, group by group (`sinks.publishing`) |
| `Release` | the file `released`, which the readers of channels look at |
| `Restore` | the whole run ends, to begin again from the record (`restoring`) |

A publication that failed for want of something (a database is down) is told to the coordinator, who says
COMMIT again; any other failure ends the query.

What if we die here: what is durable is the snapshot, the barriers and what sinks have prepared; the next
attempt begins without a memory, and is told again.

Invariants:

1. A snapshot is of one boundary: batch, channels, sources and sinks say the same.
2. Nothing is published that the coordinator has not decided.

Called by `query`; commands come from `book`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from drivetrain.core.checkpoint.barriers import (
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
    Restore,
    Resume,
    RollBack,
    SnapshotFailed,
    SnapshotTaken,
    TakeSnapshot,
    TellLost,
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
from drivetrain.crash_points import CrashPoint, reached
from drivetrain.errors import DrivetrainError, InternalError, UnavailableError
from drivetrain.runtime.checkpoints.savepoint import positions_in
from drivetrain.runtime.checkpoints.snapshots import RELEASED, Snapshots, StateFileDamagedError
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.spark.channel.clock_source import publish_clock, read_clock
from drivetrain.spark.checkpoints.boundary import QueryBoundary
from drivetrain.spark.checkpoints.entries import note_entries
from drivetrain.spark.checkpoints.publishing import is_transactional, publish_transaction
from drivetrain.spark.checkpoints.restoring import ANEW, DAMAGED
from drivetrain.spark.state.kept_times import kept_times

if TYPE_CHECKING:
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.checkpoints.participants import CheckpointBook
    from drivetrain.spark.connector.sink import SinkWriter

KEEPER: Final = "@checkpoint"
"""The subscriber as which the newest record holds on to what channels have behind its barriers."""

FIRST_LIFE: Final = 1
_LOOK_S: Final = 0.1
_BETWEEN_S: Final = 0.25
"""How long a boundary is waited for at once; then it is looked whether the query still runs."""
_REPORT_S: Final = 0.2


@dataclass(frozen=True)
class _Ran:
    """The query has run a batch."""


@dataclass(frozen=True)
class _Look:
    """There may be a barrier in a channel."""


@dataclass(frozen=True)
class _Stop:
    """The attempt is over."""


@dataclass(frozen=True)
class _Heard:
    """A command came as a word."""

    input: str
    command: Command


_News: TypeAlias = _Ran | _Look | _Stop | _Heard


class RestoreNeededError(DrivetrainError):
    """The application has to go back to its newest checkpoint before it can go on."""

    code = "restore-needed"


class Participation:
    """The part of one attempt of a fragment; `sinks` are those of the whole application.

    With `transactional` checkpoints go on all the time and sinks publish with them; without, there are only
    those that somebody asks for, and sinks publish each batch by themselves.
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
        own = [node.id for node in query.branches.nodes if node.id in sinks]
        self._own_sinks: Final = [id for id in own if transactional and is_transactional(sinks[id])]
        self._boundary: Final = QueryBoundary(query)
        stateful = query.fragment.stateful
        self._stateful: Final = None if stateful is None else query.plan.graph.nodes[stateful].operation
        self._logs: Final = [*query.readers.values(), *(s.store for s in query.trunk.stored.values())]
        self._released: Final = query.directory / RELEASED
        (query.directory / ANEW).unlink(missing_ok=True)
        inputs = [*query.readers, *([COORDINATOR] if query.trunk.sources else [])]
        # What it has is of the present life, and whole: what was lost was restored before any query was made.
        self._known: Final = files.transaction()
        life = FIRST_LIFE if self._known is None else self._known.life
        saved = max(self._snapshots.rounds(self.fragment), default=0)
        self._core: Final = Participant(self.fragment, inputs, files.life(self.fragment) or life, saved=saved)
        self._inbox: Final[queue.SimpleQueue[_News]] = queue.SimpleQueue()
        self._words: list[_Heard] = []  # barriers that came as words, before their channel's end
        self._ended: set[str] = set()
        self._at: dict[str, int] = {}  # the round of the newest barrier that it has come to, by channel
        self._has_news = False
        self._reported_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"checkpoint-{self.fragment}", daemon=True)

    # -- for the query and the book ---------------------------------------------------------------------

    def start(self) -> None:
        """Take part from now on."""
        if self._is_transactional:
            self._keep_behind(None if self._known is None else self._known.record)
        elif self._known is not None:
            for store in self._logs:
                store.forget_subscriber(KEEPER)
        self._book.joins(self)
        self._thread.start()
        self._inbox.put(_Ran())  # what the query stands at since an earlier attempt

    def ran(self) -> None:
        """The query has run a batch."""
        self._inbox.put(_Ran())

    def look(self) -> None:
        """There may be a barrier in one of its channels."""
        self._inbox.put(_Look())

    def hear(self, input: str, command: Command) -> None:
        """A command has come by an input."""
        self._inbox.put(_Heard(input, command))

    def close(self) -> None:
        """Take part no more; waits for what is being done."""
        self._stopping.set()
        self._book.leaves(self)
        self._inbox.put(_Stop())
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    # -- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                news = self._next()
                if isinstance(news, _Stop):
                    return
                if news is not None:
                    self._take(news)
                self._look_at_barriers()
                self._report()
                self._look_at_ends()
            except UnavailableError as error:
                self._book.answer(ActionFailed(self.fragment, str(error)))
            except BaseException as error:  # noqa: BLE001 - it ends the query, which tells it
                self._query.fail(error)
                return

    def _next(self) -> _News | None:
        waits = bool(self._core.held or self._words or self._has_news)
        waits = waits or (self._is_transactional and bool(self._query.readers))
        try:
            return self._inbox.get(timeout=_LOOK_S if waits else 10 * _LOOK_S)
        except queue.Empty:
            return None

    def _take(self, news: _News) -> None:
        match news:
            case _Ran():
                self._has_news = True
            case _Look() | _Stop():
                pass
            case _Heard(input, command):
                if command.action is Action.PREPARE and input != COORDINATOR and input not in self._ended:
                    self._words.append(news)
                else:
                    self._step(CommandArrived(input, command))

    def _look_at_barriers(self) -> None:
        """Whether the query has come to barriers that it was not told of."""
        for channel, command in self._boundary.barriers().items():
            if command.round <= self._at.get(channel, 0):
                continue
            self._at[channel] = command.round
            if command.round > (read_clock(self._released) or 0):
                self._step(CommandArrived(channel, command))

    def _look_at_ends(self) -> None:
        """Whether channels that somebody waits for have been read to their end."""
        if not (self._core.held or self._words):
            return
        for channel in self._query.readers:
            if channel not in self._ended and self._query.inputs.has_read_all(channel):
                self._ended.add(channel)
                self._step(InputEnded(channel))
        ready = [word for word in self._words if word.input in self._ended]
        self._words = [word for word in self._words if word.input not in self._ended]
        for word in ready:
            self._step(CommandArrived(word.input, word.command))

    def _report(self) -> None:
        """Tell the coordinator that there is something new to save; not for each of many small batches.

        Every batch is news, of whatever fragment: one that only the clock began may have results, too.
        """
        now_s = time.monotonic()
        if self._has_news and now_s - self._reported_s > _REPORT_S:
            self._has_news, self._reported_s = False, now_s
            self._book.answer(BatchesRan(self.fragment))

    # -- effects ------------------------------------------------------------------------------------------

    def _step(self, event: CommandArrived | InputEnded | SnapshotTaken | SnapshotFailed) -> None:
        effects = self._core.step(event)
        self._core.check()
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Hold():
                pass
            case Release(round):
                publish_clock(self._released, round)
            case TakeSnapshot(command):
                self._take_snapshot(command)
            case Publish() as publish:
                self._publish(publish)
            case RollBack(_, round):
                self._snapshots.drop(self.fragment, round)
            case Restore():
                raise RestoreNeededError(
                    "the application goes back to its newest checkpoint", where=f"fragment {self.fragment}"
                )
            case Resume(command):
                self._files.note_life(self.fragment, command.life)
                self._keep_behind(command.record)
            case Forward(command):
                self._forward(command)
            case Acknowledge(ack):
                self._book.answer(ack)
            case Refuse(_, reason):
                self._book.answer(ActionFailed(self.fragment, reason))
            case TellLost(life):
                self._book.answer(StateLost(self.fragment, life, "its checkpoint is lost"))

    def _take_snapshot(self, command: Command) -> None:
        """Save the fragment at its next boundary; until that is acknowledged no batch begins."""
        while not self._stopping.is_set():
            with self._boundary.between_batches(_BETWEEN_S) as is_between:
                if is_between:
                    self._snapshot(command)
                    return
            if not self._boundary.goes_on:
                self._step(SnapshotFailed(command.round, "its query has stopped"))
                return

    def _snapshot(self, command: Command) -> None:
        query, round = self._query, command.round
        sources, channels = self._boundary.positions()
        reached(CrashPoint.BEFORE_SNAPSHOT)
        try:
            note_entries(query.directory, channels, query.readers)
            size = self._snapshots.take(self.fragment, round, query.directory, query.batch_id)
            pictures = kept_times(query.directory, self._stateful, query.batch_id)
        except StateFileDamagedError as damaged:
            if self._is_transactional:
                (query.directory / DAMAGED).touch()
                raise RestoreNeededError(damaged.what, where=damaged.where) from damaged
            self._step(SnapshotFailed(round, str(damaged)))
            return
        except DrivetrainError as error:
            self._step(SnapshotFailed(round, str(error)))
            return
        reached(CrashPoint.AFTER_SNAPSHOT)
        sinks = dict.fromkeys(self._own_sinks, self._boundary.last_number)
        snapshot = Snapshot(query.batch_id, sources, channels, sinks, size, pictures)
        self._step(SnapshotTaken(round, snapshot))

    def _publish(self, publish: Publish) -> None:
        record = publish.command.record
        if record is None:
            raise InternalError("a transaction is committed without a record", where=self.fragment)
        reached(CrashPoint.BEFORE_PUBLICATION)
        if publish.snapshot is not None and publish.snapshot.sinks:
            last = {id: n for snapshot in record.fragments.values() for id, n in snapshot.sinks.items()}
            publish_transaction(self._sinks, record.txid, last, own=publish.snapshot.sinks)
            if self._boundary.is_finished:
                self._query.rolling.finish()
        reached(CrashPoint.AFTER_PUBLICATION)
        self._snapshots.forget(self.fragment, record.round)
        self._keep_behind(record)

    def _keep_behind(self, record: CheckpointRecord | None) -> None:
        """Have channels keep what comes behind the record, and no more; none: all of it."""
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
