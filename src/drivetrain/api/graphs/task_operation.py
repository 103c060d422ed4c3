"""The operation that runs a Task: its hooks, its output type, its state.

Called by `stream` and `processor`.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import UnionType
from typing import Any

from drivetrain.api.graphs.functions import name_of, output_type
from drivetrain.api.location import caller
from drivetrain.api.operations import Operation, Process
from drivetrain.api.partitioners import Partitioner
from drivetrain.api.states.keyed_task import KeyedTask, hooks_of, keyed
from drivetrain.api.states.persistent import PersistentTask, persistence, written_hooks
from drivetrain.api.task import NamedOutput, Task, TimestampedValue
from drivetrain.api.types import MessageType, element_annotation, message_type, returned_annotation
from drivetrain.config.nearest import did_you_mean
from drivetrain.errors import GraphError

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


def handles_clock(kind: type[Task[Any, Any]]) -> bool:
    """Whether a Task class has a hook of its own for the clock or for the end."""
    return kind.on_clock is not Task.on_clock or kind.on_stop is not Task.on_stop


def require_no_key(operation: Process, partitioner: Partitioner) -> None:
    """Raise `GraphError` for a partitioner of a Task that has a key."""
    if (operation.persistent or operation.keyed) is not None:
        raise GraphError(
            f"{operation.task_name} already distributes messages by its key",
            where=str(caller()),
            expected="no partitioner",
            got=str(partitioner),
        )


def process(
    task: Callable[[], Task[Any, Any]],
    parallelism: int,
    partitioners: tuple[Partitioner, ...],
    returns: object | None,
) -> Process:
    """The operation that runs `task`; raises `GraphError` when it is not a Task or has no output type."""
    where = caller()
    kind = task if isinstance(task, type) else _made_by(task)
    if not issubclass(kind, Task):
        raise GraphError(
            "not a Task", where=str(where), expected="a subclass of drivetrain.Task", got=kind.__name__
        )
    if parallelism < 1:
        raise GraphError(
            f"{kind.__name__} needs a parallelism of at least 1", where=str(where), got=str(parallelism)
        )
    if issubclass(kind, PersistentTask):
        made = _of_keys(task, kind, returns, written_hooks(kind))
        return replace(made, persistent=persistence(kind))
    if issubclass(kind, KeyedTask):
        states = keyed(kind)
        return replace(_of_keys(task, kind, returns, hooks_of(kind)), keyed=states)
    batched = hasattr(kind, "on_batch")
    declared = returns if returns is not None else kind.output
    if declared is None and not batched:
        declared = _without_named_outputs(kind.on_next)
    out: MessageType = output_type(
        kind.__name__, where, kind.on_next, declared, element=declared is None and not batched
    )
    return Process(
        task,
        kind.__name__,
        out,
        parallelism,
        partitioners,
        kind.stateful,
        batched,
        handles_clock(kind),
        outputs=named_outputs(kind),
    )


def _made_by(task: object) -> type:
    """The class of what a function creates; raises `GraphError` for anything but such a function."""
    got, remedy = repr(task), ""
    if isinstance(task, Task):
        got, remedy = "an instance", f"give the class itself: process({type(task).__name__})"
    elif callable(task):
        try:
            inspect.signature(task).bind()
        except TypeError:
            got = f"a function of messages: {name_of(task)}"
            remedy = "use map(function) or flat_map(function)"
        else:
            return type(task())
    raise GraphError(
        "not a Task",
        where=str(caller()),
        expected="a subclass of drivetrain.Task, or a function without parameters that creates one",
        got=got,
        remedy=remedy or None,
    )


def named_outputs(kind: type[Task[Any, Any]]) -> tuple[tuple[str, MessageType], ...]:
    """The named outputs that a Task class declares; raises `GraphError` for an invalid name or type."""
    if not isinstance(kind.outputs, Mapping):
        raise GraphError(
            f"{kind.__name__}.outputs cannot be read",
            where=str(caller()),
            expected='names with their types, such as outputs = {"refused": Refusal}',
            got=repr(kind.outputs),
        )
    found = []
    for name, declared in kind.outputs.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise GraphError(
                f"{kind.__name__}.outputs has a name that no output can have",
                where=str(caller()),
                expected="letters, digits and _, starting with a letter",
                got=repr(name),
            )
        found.append((name, output_type(f"{kind.__name__}, its output {name}", caller(), kind, declared)))
    return tuple(found)


def _without_named_outputs(hook: Any) -> object | None:
    """The type of the main results of a hook whose annotation mentions `NamedOutput`; None for any other
    hook."""
    options = _options(hook)
    main = [option for option in options if option not in (NamedOutput, TimestampedValue[NamedOutput])]
    if len(main) == len(options):
        return None
    plain = [option for option in main if typing.get_origin(option) is not TimestampedValue]
    # If nothing leaves the main output, its stream still has a type.
    return functools.reduce(operator.or_, plain) if plain else str


def _options(hook: Any) -> tuple[Any, ...]:
    """The types that results of a hook may have, according to its annotation."""
    element = element_annotation(returned_annotation(hook))
    is_union = typing.get_origin(element) in (typing.Union, UnionType)
    return typing.get_args(element) if is_union else (element,)


def _of_keys(
    task: Callable[[], Task[Any, Any]], kind: type[Task[Any, Any]], returns: object | None, hooks: list[Any]
) -> Process:
    """The operation of a Task with states by key; `hooks` are those that its class defines."""
    declared = returns if returns is not None else kind.output
    telling = [hook for hook in hooks if element_annotation(returned_annotation(hook)) is not None]
    named: set[object] = {NamedOutput, TimestampedValue[NamedOutput]}
    telling.sort(key=lambda hook: set(_options(hook)) <= named)  # those with main results first
    telling += [hook for hook in hooks if returned_annotation(hook) is None]
    if declared is None and telling:
        declared = _without_named_outputs(telling[0])
    if declared is not None or telling:
        of = (*telling, kind.on_next)[0]
        out = output_type(kind.__name__, caller(), of, declared, element=declared is None)
    else:
        out = message_type(str)  # nothing leaves it, but a stream has a type
    return Process(
        task,
        kind.__name__,
        out,
        1,
        (),
        stateful=True,
        batched=False,
        outputs=named_outputs(kind),
    )


def no_output(id: str, name: str, operation: Operation) -> GraphError:
    """The error for an output that a processor does not have."""
    if not isinstance(operation, Process):
        return GraphError(
            "only a Task has named outputs",
            where=f"{id} ({caller()})",
            got=f"output({name!r}) of {type(operation).__name__.lower()}",
            remedy="use .output of the stream that process(...) returned",
        )
    names = [known for known, _ in operation.outputs]
    return GraphError(
        f"{operation.task_name} has no output {name!r}",
        where=f"{id} ({caller()})",
        expected=", ".join(names) or "a class attribute outputs",
        got=name,
        remedy=did_you_mean(name, names, otherwise=f'declare it: outputs = {{"{name}": ...}}'),
    )
