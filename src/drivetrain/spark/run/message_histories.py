"""Messages from before a change, for its new fragments: the shell around `history_reader`.

Problem: reading a month of messages takes long. Meanwhile the application keeps running with its version;
it may be stopped or killed, and the user may cancel the change. When all is read, the new version must come
into force exactly where reading has ended.

Design: a change with a history is compiled first, like any other, and then waits here. Each running
fragment that writes a new channel has a reader, in a thread of its own. When all of them are near, these
fragments are held between two batches, the readers read the rest, the channels are moved to their places,
and the change is recorded before the fragments continue (`completed`). So the recorded version names
channels that are complete.

What if we die here: until the version is recorded nothing has changed, and what was read belongs to no
version: the next process deletes it. After that, the channels have all messages up to the batch that is named
in them, and the fragments' next batch runs with the new version, even if Spark had planned it before
(`application_versions`).

Invariants:

1. A version with a history is recorded only while the fragments that write its channels are held, at the
   batches at which reading has ended.
2. A fragment is held only once all readers are near.
3. No separate copies of channels remain after a change has begun, or was given up.

Called by `live_changes`. `history_readers` makes the readers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.core.change.message_history import HistoryState, read_again
from drivetrain.runtime.former_messages import FormerMessages
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.run.history_readers import HistoryError, failed_notices, failure_of, with_history

if TYPE_CHECKING:
    from drivetrain.spark.repair.steps import Steps
    from drivetrain.spark.run.application_versions import ApplicationVersions
    from drivetrain.spark.run.change_proposal import Proposal
    from drivetrain.spark.run.execution import Execution
    from drivetrain.spark.run.fragment_driver import FragmentDriver
    from drivetrain.spark.run.history_reader import HistoryReader
    from drivetrain.spark.run.recovery import SteppedWork


_NOTICE_S: Final = 60.0
"""How often a notice shows the progress."""


class MessageHistories:
    """The histories of changes of `execution`, whose fragments `drivers` drive, by id.

    `begin` starts the steps of a reader.
    """

    def __init__(
        self,
        execution: Execution,
        drivers: Mapping[str, FragmentDriver],
        begin: Callable[[str, Steps[None]], SteppedWork],
    ) -> None:
        assert execution.versions is not None, "an application that cannot change"
        self._versions: Final[ApplicationVersions] = execution.versions
        self._execution: Final = execution
        self._drivers: Final = drivers
        self._former: Final = FormerMessages(execution.rundir)
        self._begin: Final = begin
        self._readers: tuple[HistoryReader, ...] = ()
        self._stepping: list[SteppedWork] = []
        self._state: HistoryState | None = None
        self._given_up: str | None = None
        self._noticed_s = 0.0

    # -- for any thread --------------------------------------------------------------------------------

    @property
    def state(self) -> HistoryState | None:
        """How far the history of the current or last change has been read; None if there was none."""
        state, readers = self._state, self._readers
        if state is None or state.is_over:
            return state
        return state.with_progress([(r.rows, r.newest_ms, self._newest_of(r.fragment)) for r in readers])

    @property
    def is_reading(self) -> bool:
        """Whether a change waits for its history."""
        return bool(self._readers)

    def _newest_of(self, fragment: str) -> int | None:
        driver = self._drivers.get(fragment)
        return None if driver is None else max(driver.query.clock.newest_ms.values(), default=None)

    def prepared(self, proposal: Proposal, from_ms: int | None) -> Proposal:
        """A proposal with the readers of its history, if it has one; raises an error if the history cannot
        be read."""
        self._state, self._given_up = None, None
        if from_ms is None:
            return proposal
        self._former.delete()
        return with_history(proposal, from_ms, self._versions, self._execution.engine, self._former)

    def start(self, proposal: Proposal) -> None:
        """Begin to read the history of a proposal, if it has one."""
        from_ms = proposal.loaded.record.history_ms
        if not proposal.histories or from_ms is None:
            return
        before = self._versions.in_force.record
        self._state = HistoryState(from_ms, tuple(read_again(before, proposal.loaded.record)))
        self._readers, self._noticed_s = proposal.histories, time.monotonic()
        self._stepping = [self._begin(reader.fragment, reader.steps()) for reader in proposal.histories]
        self._versions.notices.append(self._state.of_change(proposal.change.number))

    def give_up(self, why: str) -> None:
        """Stop reading the current history, which ends the change."""
        self._given_up = why

    # -- for the thread that polls ---------------------------------------------------------------------

    @contextmanager
    def completed(self, proposal: Proposal | None) -> Iterator[Proposal | None]:
        """The proposal, once its history is in place and the fragments that write it are held; None before.

        Raises HistoryError when it cannot be read, or was given up.
        """
        if proposal is None or not proposal.histories:
            yield proposal
            return
        with ExitStack() as held:
            try:
                is_complete = self._look(held)
                if is_complete:
                    self._publish(proposal)
            except BaseException:
                self._end()
                raise
            try:
                yield proposal if is_complete else None
            finally:
                if is_complete:
                    self._end()

    def close(self) -> None:
        """Give up reading, because the run ends."""
        if self._stepping:
            self._end()

    # -- parts -----------------------------------------------------------------------------------------

    def _look(self, held: ExitStack) -> bool:
        """Whether all is read, and the fragments are held there; `held` releases them."""
        if self._given_up is not None:
            raise HistoryError("the change was cancelled", got=self._given_up)
        for stepping in self._stepping:
            if not stepping.is_alive():
                raise failure_of(stepping)
        now_s, state = time.monotonic(), self.state
        if now_s - self._noticed_s > _NOTICE_S and state is not None:
            self._noticed_s = now_s
            self._versions.notices.append(state.in_words)
        if not all(reader.is_near for reader in self._readers):
            return False
        are_held = [self._hold(reader, held) for reader in self._readers]
        return all(are_held)

    def _hold(self, reader: HistoryReader, held: ExitStack) -> bool:
        """Keep a fragment from beginning batches; returns whether it is held where its reader has ended."""
        driver = self._drivers[reader.fragment]
        query = driver.query
        if driver.is_recovering or not isinstance(query, MicroBatchQuery):
            return False
        if driver.is_finished and query.has_final_batch:
            raise HistoryError(
                "the fragment that writes the messages has ended, with messages of its Tasks at the end",
                where=f"fragment {reader.fragment}",
                remedy="run the application again with --replay-from",
            )
        query.is_held = True
        if query.batch_id < query.replay_until or not query.turn.acquire(blocking=False):
            return False
        held.callback(query.turn.release)
        if not query.is_committed():
            return False
        reader.held_at = query.batch_id
        return reader.done_at == query.batch_id

    def _publish(self, proposal: Proposal) -> None:
        for reader in self._readers:
            reader.complete(self._drivers[reader.fragment].query.clock_ms)
            self._former.place(reader.fragment, (channel.id for channel in reader.channels))
            self._versions.notices.extend(failed_notices(reader, self._versions.in_force.record.processors))
        state = self.state
        assert state is not None
        self._versions.notices.append(f"version {proposal.change.number}: {state.in_words}; that is all")

    def _end(self) -> None:
        """Stop reading, let the fragments continue, and delete the separate copies of channels."""
        state = self.state
        for stepping in self._stepping:
            stepping.give_up()
        for reader in self._readers:
            driver = self._drivers.get(reader.fragment)
            if driver is not None:
                driver.query.is_held = False
        if state is not None:
            self._state = msgspec.structs.replace(state, is_over=True)
        self._readers, self._stepping = (), []
        self._former.delete()
