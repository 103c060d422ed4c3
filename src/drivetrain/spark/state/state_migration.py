"""Whether a Task with states can read those in its checkpoint, before its query starts.

Problem: a bucket of keys is migrated when its next batch reads it. If `migrate` fails for one key of a
million, others may have been written in the new form by then.

Design: the declaration with which the states were written is noted beside the checkpoint
(`state_description`). If the Task has another one, all states of the last committed batch are read and
migrated here, and thrown away. Then the query starts, and buckets are migrated as batches read them. States
of earlier times (`Pictures`) are migrated when a query reads them.

What if we die here: nothing has been written. The new declaration is noted after the check; a bucket carries
the version that it was written with, so a process that starts then reads both.

Called by `prepare.fragment` and `run.trunk_changes`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Operation, Process
from drivetrain.api.states.keyed_task import KeyedDeclaration
from drivetrain.api.states.persistent import PersistentDeclaration
from drivetrain.core.state.key_migration import declaration
from drivetrain.core.state.key_states import KeyStates
from drivetrain.core.state.two_state import TwoStates
from drivetrain.errors import InputError, UserError
from drivetrain.runtime.state.dropped_state import DroppedState
from drivetrain.spark.compile.persistent_rules import rules_of
from drivetrain.spark.session.offset_log import committed
from drivetrain.spark.state.state_description import noted_operator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_migratable(spark: SparkSession, fragment: Path, node: Node) -> None:
    """Raise `UserError` if a Task cannot read the states in the checkpoint of its fragment."""
    operation, batch = node.operation, committed(fragment / "checkpoint")
    declared = declared_of(operation)
    if declared is None or batch < 0 or _is_same(_noted(fragment), declared):
        return
    dropped = DroppedState(fragment).read()
    if dropped is not None and dropped.after == batch:
        return  # it is empty, and Spark has no description of it yet
    assert isinstance(operation, Process)
    read = _reader(operation)
    reader = spark.read.format("statestore").option("batchId", batch)
    blobs = reader.load(str(fragment / "checkpoint")).selectExpr("value.groupState.blob AS blob")
    try:
        for row in blobs.toLocalIterator():
            read(bytes(row["blob"]))
    except UserError as error:
        error.where = str(node)
        raise


def require_same_version(node: Node, before: Node) -> None:
    """Raise `UserError` if a Task has other states than in the version of the application that runs."""
    declared, running = declared_of(node.operation), declared_of(before.operation)
    if declared is None or running is None or _is_same(running, declared):
        return
    raise UserError(
        "the states of a Task cannot be migrated while it runs",
        where=str(node),
        expected=str(running),
        got=str(declared),
        remedy="stop the application, and run the new file with the same state directory: a rolled back "
        "version could not read migrated states",
    )


def declared_of(operation: Operation) -> KeyedDeclaration | PersistentDeclaration | None:
    """The declaration of a keyed or persistent Task; None for other operations."""
    return (operation.keyed or operation.persistent) if isinstance(operation, Process) else None


def _reader(operation: Process) -> Callable[[bytes], object]:
    """Decodes and migrates the states of a bucket."""
    if operation.keyed is not None:
        return partial(KeyStates, declaration(operation.keyed))
    return partial(TwoStates, rules_of(operation))


def _is_same(
    noted: KeyedDeclaration | PersistentDeclaration | None, declared: KeyedDeclaration | PersistentDeclaration
) -> bool:
    return noted is not None and (str(noted), noted.version) == (str(declared), declared.version)


def _noted(fragment: Path) -> KeyedDeclaration | PersistentDeclaration | None:
    try:
        noted = noted_operator(fragment)
    except InputError:
        return None  # unreadable without modules that are gone: then the states show their version
    return None if noted is None else declared_of(noted)
