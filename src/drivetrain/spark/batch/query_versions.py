"""The version of the graph that a fragment's query runs, and the version that it changes to.

Problem: branches have no state, so they can be replaced between two batches while Spark's query keeps
running. But a batch that has begun keeps its version, even after a crash, and the sinks that a version drops
must be finished before the next version begins.

Design: a `BranchSet` holds the branches of one fragment, after its trunk, in one version. `before_batch` is
called in Spark's thread, with the query's turn, before each batch: it changes to the wanted set if the batch
may run with it, and records the version of the batch (`runtime.batch_versions`).

What if we die here: dropped sinks are finished first, then the batch's version is recorded, then the batch
runs. A process that starts in between begins with the recorded version, and changes at the same batch.

Invariants:

1. A whole batch runs with one set.
2. A batch that a crash interrupted runs again with its recorded version, if the version's code is there.

Called by `micro_batch_query`; `spark.run.live_changes` chooses the wanted set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.runtime.batch_versions import BatchVersions, VersionSpan
from drivetrain.spark.batch.branches import Branches
from drivetrain.spark.connector.publishing import finish_rolling


@dataclass(frozen=True)
class BranchSet:
    """The branches of one fragment, after its trunk, in version `number`.

    With `before` they are the branches of both versions, while that one hands over to this one; `alone` is
    then the set that follows.
    """

    number: int
    plan: Plan
    fragment: Fragment
    branches: Branches
    before: int = 0
    alone: BranchSet | None = None

    def is_of(self, number: int, before: int) -> bool:
        """Whether it is the set of a version, or of two."""
        return (self.number, self.before) == (number, before)


class QueryVersions:
    """The sets of one query: the one that runs, and the one that is wanted.

    `replay_until` is the last batch that may have run before this query. With `on_trial` set, a batch is
    computed whole before any output gets something of it, and messages that reach the branches are counted.
    """

    def __init__(self, record: BatchVersions, first: BranchSet, replay_until: int) -> None:
        self.trunk: Final = first.number
        """The version of the query's trunk; other versions that it can switch to have the same one."""
        self.running: BranchSet = first
        self.wanted: BranchSet = first
        self._left: BranchSet | None = None  # the one before `running`: a trial may go back to it
        self.on_trial = False
        self._record: Final = record
        self._replay_until: Final = replay_until
        self._began: dict[int, int] = {}
        self._reached: int | None = None
        self.newest_ms: Callable[[], int | None] = _nothing
        """The largest timestamp that messages before the fragment's next batch may have; None: unknown."""

    def begin_with(self, earlier: BranchSet) -> None:
        """Have a query that is not started begin with another set than the one it was compiled with; with
        that of two versions it continues until another one is wanted."""
        self.running = earlier
        if earlier.before and earlier.number == self.wanted.number:
            self.wanted = earlier

    def want(self, wanted: BranchSet) -> None:
        """Have the query switch to a set before its next batch."""
        self.wanted = wanted

    def at_hand(self, number: int, before: int = 0) -> BranchSet | None:
        """The set of a version that is compiled already: it runs, is wanted, ran before, or follows."""
        # In this order: `_left` was `running`.
        for known in (self.running, self.wanted, self._left, self.running.alone, self.wanted.alone):
            if known is not None and known.is_of(number, before):
                return known
        return None

    def newest_since(self) -> VersionSpan | None:
        """The versions of the newest batch as recorded, or None. Raises InputError."""
        return self._record.newest_since()

    def has_run_alone(self, number: int) -> bool:
        """Whether a batch ran with a version without the one before it, as recorded. Raises InputError."""
        return self._record.has_run_alone(number)

    def since_of(self, batch_id: int) -> VersionSpan | None:
        """The versions of a batch as recorded, or None. Raises InputError."""
        return self._record.since_of(batch_id)

    def note_next(self, batch_id: int) -> None:
        """Note that a batch that has not begun will run with the wanted set; the query's turn is held."""
        self._record.note(batch_id, self.wanted.number, self.wanted.before)

    def began(self, number: int) -> int | None:
        """The first batch that began with a version since the last call, or None."""
        return self._began.get(number)

    def note_reached(self, batch_id: int) -> None:
        """Messages have reached the branches of the running set, in a batch that is not committed yet."""
        self._reached = batch_id if self._reached is None else self._reached

    def reached(self, number: int, before: int = 0) -> int | None:
        """The first batch in which messages reached a version that runs, or None if none were counted.

        With `before` it is the new one of two versions. The batch may not be committed.
        """
        return self._reached if self.running.is_of(number, before) else None

    def can_still_run(self, number: int, last: int) -> bool:
        """Whether a batch after batch `last` may run with a version, if no other one is wanted meanwhile."""
        if self.wanted.number == number:
            return True
        return self.running.number == number and self.is_bound(last + 1)

    def has_left(self, batch_id: int) -> bool:
        """Whether a batch failed with another version than the wanted one, which may run it now."""
        return self.running.number != self.wanted.number and not self.is_bound(batch_id)

    def before_batch(self, batch_id: int) -> BranchSet:
        """The set that a batch is to run with; the version is noted.

        Raises InputError when the record is damaged, and DiskFullError when it cannot be written.
        """
        wanted = self.wanted
        if wanted is not self.running and not self.is_bound(batch_id):
            staying = list(wanted.branches.sinks.values())
            finish_rolling(sink for sink in self.running.branches.sinks.values() if sink not in staying)
            if wanted.number != self.running.number:
                self._began.pop(self.running.number, None)
            self.running.branches.release()
            self._left, self._reached = self.running, None
            self.running = wanted
        self._record.note(batch_id, self.running.number, self.running.before)
        self._began.setdefault(self.running.number, batch_id)
        return self.running

    def failed(self, batch_id: int) -> None:
        """A batch has ended with an error: any version may run it."""
        self._record.note_free(batch_id)

    def not_begun(self, batch_id: int) -> None:
        """This query has not begun a batch; any version may run it, unless an earlier query has begun it."""
        if not self.is_bound(batch_id):
            self._record.note_free(batch_id)

    def is_bound(self, batch_id: int) -> bool:
        """Whether an output may have results of a batch that began before this query."""
        return batch_id <= self._replay_until and self._record.version_of(batch_id) is not None


def _nothing() -> None:
    """Nothing is known of timestamps."""
