"""A fragment whose messages were lost is repaired and goes on, by itself.

Problem: a lost segment must not end an application, nor stop its other fragments, nor be tried for ever.

Design: a query that ends with `MessageLossError` is stopped; what it reads (and what it wrote last) is
repaired; the fragment is compiled anew and goes on from its last committed batch, so it reads again what it
had not committed, and its clock stands meanwhile. When nothing damaged is found the query is only started
again: once, for an error may have passed; then the error stands. The counts of the fragment go on. A query
that ends because its source has new partitions (`PartitionsChangedError`) only needs to be compiled anew.

`Recovery` does that in steps, `Recovering` takes them in a thread of its own.

Invariants:

1. A fragment's old query is stopped before anything of it is repaired.
2. Repairs are bounded: each entry by `loss_record.MOST`, restarts that found nothing to one a batch.

Called by `spark.run.fragment_driver`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from drivetrain.core.plan.delivery import AT_MOST_ONCE
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.batch.source_clock import PartitionsChangedError
from drivetrain.spark.repair.repair import Repair
from drivetrain.spark.repair.steps import Steps, wait_done
from drivetrain.spark.run.execution import Execution

Recoverable: TypeAlias = MessageLossError | PartitionsChangedError
"""What ends a query that can go on as another one."""


class Recovery:
    """Recovers fragments of one process.

    `tell` hears what happens, for people; `compiling` is held while a fragment is compiled.
    """

    def __init__(
        self,
        execution: Execution,
        tell: Callable[[str], None],
        compiling: AbstractContextManager[object] | None = None,
    ) -> None:
        self._execution = execution
        self._tell = tell
        self._compiling = compiling or threading.Lock()  # what fragments share is not made twice
        self._fruitless: dict[str, int] = {}  # the batch at which nothing was found damaged

    def recover(self, query: FragmentQuery, failure: Recoverable) -> Steps[FragmentQuery]:
        """Repair what `query` lost, and make its successor, which is to be started; takes seconds.

        Raises LostForGoodError, and `failure` itself when nothing is damaged again and again.
        """
        query.stop()
        id = query.fragment.id
        repair = Repair(
            self._execution.context,
            self._execution.engine,
            query.directory / "again",
            compiling=self._compiling,
            tell=self._tell,
            skip=self._execution.plan.delivery == AT_MOST_ONCE,
        )
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


class Underway(Protocol):
    """The recovery of one fragment, for who must not block; begun by whoever made it."""

    def is_alive(self) -> bool:
        """Whether it goes on."""
        ...

    def successor(self) -> FragmentQuery:
        """The next query of the fragment, once it has ended. Raises why there is none."""
        ...

    def give_up(self) -> None:
        """End it, and wait for that; the next run goes on with it."""


class Recovering(threading.Thread):
    """A recovery in a thread of its own, which runs at once."""

    def __init__(self, fragment: str, steps: Steps[FragmentQuery]) -> None:
        super().__init__(name=f"recovering-{fragment}", daemon=True)
        self._fragment = fragment
        self._steps = steps
        self._given_up = threading.Event()
        self._successor: FragmentQuery | None = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Take the steps; see `Recovery.recover`."""
        try:
            self._successor = wait_done(self._steps, self._given_up.is_set, f"fragment {self._fragment}")
        except BaseException as error:  # noqa: BLE001 - raised by `successor`
            self._error = error

    def successor(self) -> FragmentQuery:
        """The next query of the fragment, once the thread has ended. Raises why there is none."""
        if self._error is not None:
            raise self._error
        assert self._successor is not None, "the recovery has not ended"
        return self._successor

    def give_up(self) -> None:
        """End the recovery, and wait for that; the next run goes on with it."""
        self._given_up.set()
        self.join()
