"""Operations that look at one message at a time."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from drivetrain.api.durations import duration_text
from drivetrain.api.expressions.columns import Column
from drivetrain.api.operations.operation import Function, Operation
from drivetrain.api.types import MessageType

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True)
class Select(Operation):
    """Keeps or computes columns, natively; `keep` adds to the columns instead of replacing them.

    A value that is a Python function takes the columns named by its parameters.
    """

    columns: tuple[tuple[str | None, Column | Function], ...]
    keep: bool = False
    keeps_number: ClassVar[bool] = True

    @property
    def described(self) -> str:
        return ", ".join(name or str(c) for name, c in self.columns)

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(c for _, c in self.columns if isinstance(c, Function))


@dataclass(frozen=True)
class Drop(Operation):
    """Removes columns, natively."""

    columns: tuple[str, ...]
    keeps_number: ClassVar[bool] = True

    @property
    def described(self) -> str:
        return ", ".join(self.columns)


@dataclass(frozen=True)
class Rename(Operation):
    """Gives columns other names, natively: pairs of the new and the old name."""

    columns: tuple[tuple[str, str], ...]
    keeps_number: ClassVar[bool] = True

    @property
    def described(self) -> str:
        return ", ".join(f"{old} → {new}" for new, old in self.columns)


@dataclass(frozen=True)
class _FunctionOperation(Operation):
    """Transforms messages with a Python function."""

    function: Function

    @property
    def described(self) -> str:
        return f"→ {self.function.type}"

    @property
    def functions(self) -> tuple[Function, ...]:
        return (self.function,)


@dataclass(frozen=True)
class Map(_FunctionOperation):
    """Emits one message for each message."""

    keeps_number: ClassVar[bool] = True


@dataclass(frozen=True)
class AsyncCalls:
    """The settings of calls of an asynchronous function; `cache_ms` is None without a cache.

    `cache` identifies the cached results of this declaration: another function does not use them, even if it
    is at the same line of a changed file.
    """

    concurrency: int
    timeout_ms: int
    retries: int
    backoff_ms: int
    cache_ms: int | None = None
    cache: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False, repr=False)

    def __str__(self) -> str:
        retries = "1 retry" if self.retries == 1 else f"{self.retries} retries"
        text = f"{self.concurrency} at a time, {duration_text(self.timeout_ms)} each, {retries}"
        return text if self.cache_ms is None else f"{text}, cached for {duration_text(self.cache_ms)}"


@dataclass(frozen=True)
class AsyncMap(_FunctionOperation):
    """One message out for each in, by an asynchronous function of which many calls run at a time."""

    calls: AsyncCalls
    keeps_number: ClassVar[bool] = True

    @property
    def described(self) -> str:
        return f"→ {self.function.type}, {self.calls}"


@dataclass(frozen=True)
class FlatMap(_FunctionOperation):
    """Any number of messages out for each in."""

    is_counted: ClassVar[bool] = True


@dataclass(frozen=True)
class Filter(Operation):
    """Keeps the messages for which the condition holds."""

    condition: Column | Function
    is_counted: ClassVar[bool] = True

    @property
    def described(self) -> str:
        return str(self.condition) if isinstance(self.condition, Column) else "by a function"

    @property
    def functions(self) -> tuple[Function, ...]:
        return (self.condition,) if isinstance(self.condition, Function) else ()


@dataclass(frozen=True)
class Sample(Operation):
    """Keeps a part of the messages, chosen by a hash of the keys, or of the message without keys."""

    fraction: float
    keys: tuple[str, ...]
    seed: int
    is_counted: ClassVar[bool] = True

    @property
    def described(self) -> str:
        what = f"keys of {', '.join(self.keys)}" if self.keys else "messages"
        return f"{self.fraction:g} of the {what}, seed {self.seed}"


@dataclass(frozen=True)
class Repartition(Operation):
    """Distributes the messages over a number of tasks, evenly or by a hash of columns."""

    tasks: int
    keys: tuple[str, ...]
    realtime_obstacle: ClassVar[str | None] = "moves messages between tasks, which Spark does only in batches"

    @property
    def described(self) -> str:
        return f"over {self.tasks} tasks{' by ' + ', '.join(self.keys) if self.keys else ''}"


@dataclass(frozen=True)
class SelectSql(Operation):
    """Computes messages by SQL: the columns, the name of the stream, and the clauses that follow it."""

    columns: str
    alias: str
    clauses: str
    is_counted: ClassVar[bool] = True

    @property
    def described(self) -> str:
        alias = [] if self.alias == "this" else [self.alias]
        words = ["SELECT", *self.columns.split(), "FROM this", *alias, *self.clauses.split()]
        return " ".join(words).replace("`__ts`", "timestamp()")


@dataclass(frozen=True)
class Union(Operation):
    """All messages of all inputs; columns are matched by name, and may be missing if `fills` is true."""

    fills: bool = False
    keeps_number: ClassVar[bool] = True

    @property
    def described(self) -> str:
        return "all inputs, missing columns null" if self.fills else "all inputs"


@dataclass(frozen=True)
class Output(Operation):
    """The messages that a Task emits to its output of this name."""

    name: str
    type: MessageType
    is_counted: ClassVar[bool] = True
    reads_aside: ClassVar[bool] = True

    @property
    def described(self) -> str:
        return f"{self.name} → {self.type}"


@dataclass(frozen=True)
class JoinTable(Operation):
    """Joins each message with the rows of a table."""

    on: tuple[str, ...]
    how: JoinKind
    refreshed: bool = False
    """Whether the table is read again while the application runs."""

    @property
    def described(self) -> str:
        return f"{self.how} on {', '.join(self.on)}"

    @property
    def differs_by_batch(self) -> bool:
        return self.refreshed
