"""Repairs a fragment's lost messages and restarts it automatically.

Problem: a lost segment must not end an application, nor stop its other fragments, nor be retried for ever.

Design: a query that ends with `MessageLossError` is stopped, and its inputs and the end of its outputs are
repaired. Then the fragment is compiled again and continues after its last committed batch, so it reads again
what it had not committed; its clock stops meanwhile. When no damage is found the query is only restarted,
once, since the error may have been transient; a second time the error is raised. The counts of the fragment
continue. A query that ends because its source has new partitions (`PartitionsChangedError`) only needs to be
compiled again.

`Recovery` does that in steps, `RecoveryThread` takes them in its own thread.

Invariants:

1. A fragment's old query is stopped before anything of it is repaired.
2. Repairs are bounded: each entry to `loss_record.MOST`, restarts without a finding to one per batch.

Called by `spark.run.fragment_driver`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Generic, Protocol, TypeAlias

from drivetrain.core.plan.delivery import AT_MOST_ONCE
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.prepare.source_clock import PartitionsChangedError
from drivetrain.spark.repair.repair import Repair
from drivetrain.spark.repair.steps import Steps, T, wait_done
from drivetrain.spark.run.execution import Execution

Recoverable: TypeAlias = MessageLossError | PartitionsChangedError
"""Errors that end a query but that a successor can recover from."""


class Recovery:
    """Recovers fragments of one process.

    `tell` gets reports for the user; `compiling` is held while a fragment is compiled.
    """

    def __init__(
        self,
        execution: Execution,
        tell: Callable[[str], None],
        compiling: AbstractContextManager[object] | None = None,
    ) -> None:
        self._execution = execution
        self._tell = tell
        self._compiling = compiling or threading.Lock()  # so that shared parts are not compiled twice
        self._fruitless: dict[str, int] = {}  # the batch at which no damage was found, by fragment

    def recover(self, query: FragmentQuery, failure: Recoverable) -> Steps[FragmentQuery]:
        """Repair what `query` lost, and make its successor, for the caller to start; takes seconds.

        Raises LostForGoodError, and `failure` itself when no damage is found twice at the same batch.
        """
        query.stop()
        id = query.fragment.id
        repair = self._repair(id, query.directory / "again")
        outgrown = isinstance(failure, PartitionsChangedError)
        if outgrown or (yield from repair.mend(id, query.inputs.unread())):
            self._fruitless.pop(id, None)
        elif self._fruitless.get(id) == query.batch_id:
            raise failure
        else:
            self._fruitless[id] = query.batch_id
        with self._compiling:
            successor = self._execution.fragment(id, counts=query.counts)
        successor.go_on(query)
        return successor

    def mend_outside(self, fragment: str, channel: str, first: int) -> Steps[int]:
        """Repair a channel that another application reads, from entry `first` on, while `fragment` writes it.

        Raises LostForGoodError.
        """
        aside = self._execution.rundir.fragment(fragment) / "again-outside"
        return (yield from self._repair(fragment, aside).mend_channel(channel, first))

    def _repair(self, fragment: str, aside: Path) -> Repair:
        versions, context = self._execution.versions, self._execution.context_of(fragment)
        return Repair(
            context,
            self._execution.engine,
            aside,
            context_of=None if versions is None else versions.context_of,
            compiling=self._compiling,
            tell=self._tell,
            skip=context.plan.delivery == AT_MOST_ONCE,
        )

    def restarted(
        self,
        query: FragmentQuery,
        ready: Callable[[FragmentQuery], None],
        between: Callable[[FragmentQuery], Steps[None]] | None = None,
    ) -> Steps[FragmentQuery]:
        """Make the successor of a query that was drained, compiled again; `ready` receives it.

        The steps of `between` come after the query has stopped, and before the next one is compiled.
        """
        query.stop()
        yield from () if between is None else between(query)
        with self._compiling:
            successor = self._execution.fragment(query.fragment.id, counts=query.counts)
        successor.go_on(query)
        ready(successor)
        return successor


class SteppedWork(Protocol):
    """Work in steps that is under way, for callers that must not block."""

    def is_alive(self) -> bool:
        """Whether it is still under way."""
        ...

    def result(self) -> None:
        """Return once it has ended; raises its error."""
        ...

    def give_up(self) -> None:
        """Stop it, and wait for that."""
        ...


class SteppedRecovery(Protocol):
    """The recovery of one fragment that is under way, for callers that must not block."""

    def is_alive(self) -> bool:
        """Whether it is still running."""
        ...

    def successor(self) -> FragmentQuery:
        """The next query of the fragment, once the recovery has ended. Raises the recovery's error."""
        ...

    def give_up(self) -> None:
        """Stop it, and wait for that; the next run completes it."""


class SteppingThread(threading.Thread, Generic[T]):
    """Steps in their own thread, which starts at once."""

    def __init__(self, fragment: str, steps: Steps[T]) -> None:
        super().__init__(name=f"recovering-{fragment}", daemon=True)
        self._fragment = fragment
        self._steps = steps
        self._given_up = threading.Event()
        self._successor: T | None = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Take the steps; see `Recovery.recover`."""
        try:
            self._successor = wait_done(self._steps, self._given_up.is_set, f"fragment {self._fragment}")
        except BaseException as error:  # noqa: BLE001 - raised by `successor`
            self._error = error

    def result(self) -> None:
        """Return once the thread has ended; raises the error of a step."""
        if self._error is not None:
            raise self._error

    def give_up(self) -> None:
        """Stop the steps, and wait for that; the next run completes their work."""
        self._given_up.set()
        self.join()


class RecoveryThread(SteppingThread[FragmentQuery]):
    """A recovery in its own thread, which starts at once."""

    def successor(self) -> FragmentQuery:
        """The next query of the fragment, once the thread has ended. Raises the recovery's error."""
        self.result()
        assert self._successor is not None, "the recovery has not ended"
        return self._successor
