"""Every operation is compiled in one place, or is an end of the graph."""

from __future__ import annotations

from drivetrain.api import operations
from drivetrain.api.operations import Log, Operation, Process, Read, Subscription, Table, Write
from drivetrain.spark.compile.operators import STATEFUL, STATELESS


def test_every_operation_has_its_line_and_only_tasks_may_or_may_not_keep_state() -> None:
    every = {kind for kind in vars(operations).values() if isinstance(kind, type)}
    kinds = {kind for kind in every if issubclass(kind, Operation)} - {Operation}
    assert set(STATELESS) | set(STATEFUL) == kinds - {Read, Table, Write, Log, Subscription}
    assert set(STATELESS) & set(STATEFUL) == {Process}


def test_every_operation_describes_itself_for_people() -> None:
    for kind in [*STATELESS, *STATEFUL, Read, Table, Write, Log, Subscription]:
        assert kind.described is not Operation.described, kind
