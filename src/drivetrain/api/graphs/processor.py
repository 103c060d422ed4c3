"""Processors of the low-level graph, and their operations.

Called by `application`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from drivetrain.api.graphs.task_operation import process
from drivetrain.api.location import Location, caller
from drivetrain.api.operations import Read, Write
from drivetrain.api.partitioners import Partitioner, shuffle
from drivetrain.api.task import Task
from drivetrain.errors import GraphError


@dataclass(frozen=True, eq=False)
class Processor:
    """A node of the low-level graph: a Task class with a parallelism, a source, or a sink.

    Join them with `Application.connect`. One `Processor` object is one node, however often it is
    connected.

    >>> class Shout(Task[str, str]):
    ...     def on_next(self, message: str) -> list[str]:
    ...         return [message.upper()]
    >>> shout = Processor(Shout, parallelism=2, name="shout")
    """

    what: Any
    parallelism: int = 1
    name: str | None = None
    returns: object | None = None
    where: Location = dataclasses.field(default_factory=caller)


def name_of_processor(processor: Processor) -> str:
    """The name of a processor, or of its class."""
    what = processor.what
    return processor.name or str(getattr(what, "__name__", type(what).__name__))


def operation_of(processor: Processor, ups: list[tuple[Processor, Partitioner | None]]) -> Any:
    """The operation of a processor that reads from `ups`; raises `GraphError` if it is not a valid one."""
    what = processor.what
    if hasattr(what, "guarantee"):
        # A sink takes messages where they are; only an explicit partitioner moves them.
        return Write(what, ups[0][1] if len(ups) == 1 else None, processor.parallelism)
    if hasattr(what, "bounded"):
        return Read(what)
    if isinstance(what, type) and issubclass(what, Task):
        partitioners = tuple(p or shuffle() for _, p in ups)
        return process(what, processor.parallelism, partitioners, processor.returns)
    raise GraphError(
        "not a valid processor",
        where=str(processor.where),
        expected="a Task class, a source or a sink",
        got=repr(what),
    )


def require_source(source: object) -> None:
    """Raise `GraphError` unless this is a source."""
    if not hasattr(source, "bounded"):
        raise GraphError(
            "not a source",
            where=str(caller()),
            expected="one of drivetrain.sources",
            got=type(source).__name__,
        )
