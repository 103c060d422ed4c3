"""Tasks: processors with their own life cycle, one instance per Spark partition.

Write a `Task` when an operator is not enough: to run code once at the start, to react to the clock, or to
handle a batch at a time. Drivetrain calls, in this order:

1. `on_start(context)` when the task starts;
2. `on_next(message)` for every message, or `on_batch(batch)` for every Arrow batch if it is defined;
3. `on_clock(clock_ms)` when the clock of the inputs has moved;
4. `on_stop()` when the application has finished.

The next processors receive the values that `on_next` and the other hooks yield (or return, as a list). The
return annotation of `on_next` (for `on_batch`: the class attribute `output`) declares the message type.
A result has the timestamp of its message; results of the other hooks have the clock as their timestamp;
yield `TimestampedValue(timestamp_ms, value)` to set another one.

Besides its main output a Task may have named ones, each with a type of its own: `outputs = {"refused":
Refusal}`. The hooks yield `NamedOutput("refused", Refusal(...))`,
and `stream.process(...).output("refused")` is the stream of these values.

A `Task` is stateless by default: its attributes may be lost between two batches, and changing one
outside `on_start` is an error. With `stateful = True` the instance's attributes are its state: they
are stored in Spark's state store, belong to every checkpoint, and survive a crash. They must be
picklable and small: each batch that reaches the task pickles them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True)
class TaskContext:
    """The context of a task instance: its processor, its `index` among `parallelism` tasks, its start time.

    `start_ms` is the application's clock when the task started, in ms since the epoch (UTC); 0 without one.

    >>> TaskContext("counts", index=0, parallelism=4, start_ms=0).parallelism
    4
    """

    processor: str
    index: int
    parallelism: int
    start_ms: int


@dataclass(frozen=True)
class TimestampedValue(Generic[Out]):
    """A result with an explicit timestamp, in ms since the epoch (UTC).

    >>> TimestampedValue(60_000, "a result of 1970-01-01T00:01")
    TimestampedValue(timestamp_ms=60000, value='a result of 1970-01-01T00:01')
    """

    timestamp_ms: int
    value: Out


@dataclass(frozen=True)
class NamedOutput:
    """A result for one of the Task's named outputs, with the timestamp that any other result would have.

    `TimestampedValue(timestamp_ms, NamedOutput(output, value))` sets another timestamp.

    >>> NamedOutput("refused", "no price")
    NamedOutput(output='refused', value='no price')
    """

    output: str
    value: Any


Results: TypeAlias = (
    Iterable[Out | NamedOutput | TimestampedValue[Out] | TimestampedValue[NamedOutput]] | None
)
"""The results of a hook."""


class Task(Generic[In, Out]):
    """Base class of user-defined processors; override the hooks you need.

    >>> class Shout(Task[str, str]):
    ...     def on_next(self, message: str) -> list[str]:
    ...         return [message.upper()]
    """

    stateful: ClassVar[bool] = False
    output: ClassVar[object | None] = None
    outputs: ClassVar[Mapping[str, object]] = {}

    def on_start(self, context: TaskContext) -> None:
        """Called once, before the first message."""

    def on_next(self, message: In) -> Results[Out]:
        """Called with each message; yield or return results."""
        raise TypeError(f"{type(self).__name__} defines neither on_next nor on_batch")

    def on_clock(self, clock_ms: int) -> Results[Out]:
        """Called when the inputs' clock has moved to `clock_ms`: only late messages can be older."""

    def on_stop(self) -> Results[Out]:
        """Called when the application has finished."""
