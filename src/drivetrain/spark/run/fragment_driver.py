"""Drives one fragment: starts its query, polls it, has losses repaired, drains and stops it.

Problem: an embedded run drives all fragments of an application in one thread, an executor drives each of its
fragments in a separate thread. A fragment must behave the same in both.

Design: `step` polls once and reacts; it never blocks for long, so one thread can drive many
fragments. A query that ends because messages were lost, or because its source has new partitions, is
recovered in a separate thread (`spark.run.recovery`) and followed by another query, in the same driver.
`step` raises any other error that stops it.

| reason why the query ended | action of the driver |
|---|---|
| its inputs | `is_finished` |
| lost messages, new partitions | recovers it: `is_recovering`, then the next query |
| `restart`, after it was drained | likewise, with nothing to repair |
| a damaged state | `RestoreNeededError` if the application can go back to a checkpoint, else the error |
| anything else | raises it |

Invariants:

1. At most one query of the fragment runs, and none while it is recovered.
2. After `stop` nothing of the fragment runs in this process.

Called by `embedded` and by the cluster's executor.
"""

from __future__ import annotations

from collections.abc import Callable

from drivetrain.core.job.run_progress import FragmentState
from drivetrain.errors import UnavailableError
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.checkpoints.participation import RestoreNeededError
from drivetrain.spark.prepare.source_clock import PartitionsChangedError
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.run.recovery import Recoverable, Recovery, RecoveryThread, SteppedRecovery
from drivetrain.spark.session.spark_errors import StateDamagedError

POLL_S = 0.05
"""How often a fragment is polled."""
DRAIN_S = 60.0
"""How long the running batch may take to finish when the application is asked to stop."""


class FragmentDriver:
    """Drives the fragment of `query`.

    `can_restore` is called when its state is damaged: it records the damage, and returns whether the
    application can go back to a checkpoint. `begin` starts a recovery, whose steps it takes, by default in a
    thread.
    """

    def __init__(
        self,
        query: FragmentQuery,
        recovery: Recovery,
        can_restore: Callable[[], bool],
        begin: Callable[[str, Steps[FragmentQuery]], SteppedRecovery] = RecoveryThread,
    ) -> None:
        self.query = query
        """The current query; while the fragment is being recovered, the one that ended."""
        self.queries_before = 0
        """How many queries of the fragment have been followed by another one."""
        self._recovery = recovery
        self._can_restore = can_restore
        self._begin = begin
        self._recovering: SteppedRecovery | None = None
        self.has_lost_its_query = False
        """Whether the next query could not be made."""

    @property
    def fragment(self) -> str:
        """The fragment's id."""
        return self.query.fragment.id

    @property
    def is_finished(self) -> bool:
        """Whether the fragment has finished."""
        return self.query.state is FragmentState.FINISHED

    @property
    def is_recovering(self) -> bool:
        """Whether no query runs because a repair is under way."""
        return self._recovering is not None

    def waiting_for(self) -> str | None:
        """What the fragment's clock waits for, as text after "waiting for"."""
        return "its restart" if self.is_recovering else self.query.waiting_for()

    # -- steps ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the query; if its channels have losses, later steps repair those first."""
        try:
            self.query.start()
        except MessageLossError as lost:
            self._recover(lost)

    def step(self, look: Callable[[FragmentQuery], None]) -> None:
        """Poll once and react; raises errors that end the fragment.

        `look` is called with the query after the poll, to read its progress. It may detect losses.
        """
        if self._recovering is not None:
            self._take_successor(self._recovering)
            return
        was_active = (
            self.query.active
        )  # read first: if the query ends meanwhile, the next step gets its error
        try:
            self.query.poll()
            look(self.query)
            # Asking Spark again would cost as much as everything else here.
            failure = None if was_active and not self.query.has_failed else self.query.failure()
        except MessageLossError as lost:
            failure = lost
        if isinstance(failure, MessageLossError | PartitionsChangedError):
            self._recover(failure)
        elif isinstance(failure, StateDamagedError) and self._can_restore():
            raise RestoreNeededError(failure.what, where=failure.where, got=failure.got) from failure
        elif failure is not None:
            raise failure
        elif not was_active and self.query.state is FragmentState.RUNNING:
            raise UnavailableError("Spark has stopped the query", where=f"fragment {self.fragment}")

    def _recover(self, failure: Recoverable) -> None:
        self.query.state = FragmentState.RESTARTING
        self._recovering = self._begin(self.fragment, self._recovery.recover(self.query, failure))

    def restart(
        self,
        ready: Callable[[FragmentQuery], None],
        between: Callable[[FragmentQuery], Steps[None]] | None = None,
    ) -> None:
        """Let another query follow, compiled again; `ready` receives it before it starts.

        The steps that `between` returns for the stopped query are taken before the next one is compiled.

        The query is drained, and all its batches are committed.
        """
        self.query.state = FragmentState.RESTARTING
        self._recovering = self._begin(self.fragment, self._recovery.restarted(self.query, ready, between))

    def _take_successor(self, recovering: SteppedRecovery) -> None:
        if recovering.is_alive():
            return
        self._recovering, self.has_lost_its_query = None, True
        self.query = recovering.successor()
        self.has_lost_its_query = False
        self.queries_before += 1
        self.start()

    def replace_query(self, successor: Callable[[FragmentQuery], FragmentQuery]) -> None:
        """Stop the query, and start its successor, which `successor` makes from it."""
        self.query.stop()
        self.query.state = FragmentState.RESTARTING
        made = successor(self.query)
        made.go_on(self.query)
        self.query, self.has_lost_its_query = made, False
        self.queries_before += 1
        self.start()

    # -- the end -------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Let the running batch finish, and stop before the next; a recovery is cancelled."""
        self._give_up_recovery()
        if self.query.state is FragmentState.RUNNING:
            self.query.state = FragmentState.DRAINING
            self.query.drain()

    @property
    def is_draining(self) -> bool:
        """Whether the batch that was running at the request to drain still runs."""
        return self.query.active and self.query.busy

    def stop(self) -> None:
        """Stop the query, and a recovery; the next attempt runs the uncommitted batch again."""
        self._give_up_recovery()
        self.query.stop()
        if self.query.state in (FragmentState.DRAINING, FragmentState.RESTARTING):
            self.query.state = FragmentState.STOPPED

    def _give_up_recovery(self) -> None:
        if self._recovering is not None:
            self._recovering.give_up()
