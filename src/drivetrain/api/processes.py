"""The operation that runs a Task: its hooks, its output type, its state.

Called by `stream` and `application`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drivetrain.api.functions import output_type
from drivetrain.api.location import caller
from drivetrain.api.operations import Process
from drivetrain.api.partitioners import Partitioner
from drivetrain.api.persistent import PersistentTask, persistence, written_hooks
from drivetrain.api.task import Task
from drivetrain.api.types import MessageType, element_annotation, message_type, returned_annotation
from drivetrain.errors import GraphError


def handles_clock(kind: type[Task[Any, Any]]) -> bool:
    """Whether a Task class has a hook of its own for the clock or for the end."""
    return kind.on_clock is not Task.on_clock or kind.on_stop is not Task.on_stop


def process(
    task: Callable[[], Task[Any, Any]],
    parallelism: int,
    partitioners: tuple[Partitioner, ...],
    returns: object | None,
) -> Process:
    """The operation that runs `task`; raises `GraphError` when it is not a Task or has no output type."""
    kind = task if isinstance(task, type) else type(task())
    where = caller()
    if not issubclass(kind, Task):
        raise GraphError(
            "not a Task", where=str(where), expected="a subclass of drivetrain.Task", got=kind.__name__
        )
    if parallelism < 1:
        raise GraphError(
            f"{kind.__name__} needs a parallelism of at least 1", where=str(where), got=str(parallelism)
        )
    if issubclass(kind, PersistentTask):
        return _persistent(task, kind, returns)
    batched = hasattr(kind, "on_batch")
    declared = returns if returns is not None else kind.output
    out: MessageType = output_type(
        kind.__name__, where, kind.on_next, declared, element=declared is None and not batched
    )
    return Process(
        task, kind.__name__, out, parallelism, partitioners, kind.stateful, batched, handles_clock(kind)
    )


def _persistent(
    task: Callable[[], Task[Any, Any]], kind: type[PersistentTask[Any, Any]], returns: object | None
) -> Process:
    declared = returns if returns is not None else kind.output
    hooks = written_hooks(kind)
    telling = [hook for hook in hooks if element_annotation(returned_annotation(hook)) is not None]
    telling += [hook for hook in hooks if returned_annotation(hook) is None]
    if declared is not None or telling:
        of = (*telling, kind.on_next)[0]
        out = output_type(kind.__name__, caller(), of, declared, element=declared is None)
    else:
        out = message_type(str)  # nothing leaves it, but a stream has a type
    return Process(
        task, kind.__name__, out, 1, (), stateful=True, batched=False, persistent=persistence(kind)
    )
