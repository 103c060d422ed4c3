"""Drives one fragment: starts its query, polls it, has losses repaired, drains and stops it.

Problem: an embedded run drives all fragments of an application in one thread, an executor each of its own in
a thread of its own. What a fragment needs of either is the same, and must not differ.

Design: `step` looks once, and does what follows; it never blocks for long, so that one thread can drive many
fragments. A query that ends because messages were lost, or because its source has new partitions, is
recovered in a thread of its own (`spark.repair.recovery`) and followed by another query, in the same driver.
Whatever else stops it is raised by `step`.

| what ended the query | what the driver does |
|---|---|
| its inputs | `is_finished` |
| lost messages, new partitions | recovers it: `is_recovering`, then the next query |
| a damaged state | `RestoreNeededError` if the application can go back to a checkpoint, else the error |
| anything else | raises it |

Invariants:

1. At most one query of the fragment runs, and none while it is recovered.
2. After `stop` nothing of the fragment runs in this process.

Called by `embedded` and by the cluster's executor.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from drivetrain.core.job.run_progress import FragmentState
from drivetrain.errors import UnavailableError
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.batch.source_clock import PartitionsChangedError
from drivetrain.spark.checkpoints.participation import RestoreNeededError
from drivetrain.spark.repair.recovery import Recoverable, Recovering, Recovery, Underway
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.session.spark_errors import StateDamagedError

POLL_S = 0.05
"""How often a fragment is looked at."""
DRAIN_S = 60.0
"""How long the batch that runs may take to finish when the application is asked to stop."""


class FragmentDriver:
    """Drives the fragment of `query`.

    `can_restore` is asked when its state is damaged: it notes the damage, and says whether the application
    can go back to a checkpoint. `begin` begins a recovery, whose steps it takes: in a thread, if not told
    otherwise.
    """

    def __init__(
        self,
        query: FragmentQuery,
        recovery: Recovery,
        can_restore: Callable[[], bool],
        begin: Callable[[str, Steps[FragmentQuery]], Underway] = Recovering,
    ) -> None:
        self.query = query
        """The present query; of a fragment that is being recovered the one that ended."""
        self.queries_before = 0
        """How many queries of the fragment ended and were followed by another one."""
        self._recovery = recovery
        self._can_restore = can_restore
        self._begin = begin
        self._recovering: Underway | None = None

    @property
    def fragment(self) -> str:
        """The fragment's id."""
        return self.query.fragment.id

    @property
    def is_finished(self) -> bool:
        """Whether the fragment has come to its end."""
        return self.query.state is FragmentState.FINISHED

    @property
    def is_recovering(self) -> bool:
        """Whether no query runs, because what the last one lost is made again."""
        return self._recovering is not None

    def waiting_for(self) -> str | None:
        """What keeps the fragment's clock, in words that fit behind "waiting for"."""
        return "its restart" if self.is_recovering else self.query.waiting_for()

    # -- steps ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the query; what its channels have lost is repaired first, by later steps."""
        try:
            self.query.start()
        except MessageLossError as lost:
            self._recover(lost)

    def step(self, look: Callable[[FragmentQuery], None]) -> None:
        """Poll once, and do what follows; raises what the fragment cannot go on from.

        `look` is called with the query once it was polled, to see how far it has come. It may find losses.
        """
        if self._recovering is not None:
            self._take_successor(self._recovering)
            return
        was_active = self.query.active  # first: if it ends while we look, the next step knows what failed
        try:
            self.query.poll()
            look(self.query)
            # To ask Spark again costs as much as all of the rest.
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

    def _take_successor(self, recovering: Underway) -> None:
        if recovering.is_alive():
            return
        self._recovering = None
        self.query = recovering.successor()
        self.queries_before += 1
        self.start()

    # -- the end -------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Let the batch that runs finish, and stop before the next; a recovery is given up."""
        self._give_up_recovery()
        if self.query.state is FragmentState.RUNNING:
            self.query.state = FragmentState.DRAINING
            self.query.drain()

    @property
    def is_draining(self) -> bool:
        """Whether the batch that ran when it was asked to drain still runs."""
        return self.query.active and self.query.busy

    def wait_drained(self, deadline_s: float, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Wait until no batch runs, until `deadline_s` (monotonic), or until `goes_on` is false."""
        while goes_on() and self.is_draining and time.monotonic() < deadline_s:
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Stop the query, and a recovery; what the running batch did not commit runs again next time."""
        self._give_up_recovery()
        self.query.stop()
        if self.query.state in (FragmentState.DRAINING, FragmentState.RESTARTING):
            self.query.state = FragmentState.STOPPED

    def _give_up_recovery(self) -> None:
        if self._recovering is not None:
            self._recovering.give_up()
