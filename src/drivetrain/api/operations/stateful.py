"""Operations with a state by key but without a window; a Task has a state only if it declares one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from drivetrain.api.durations import duration_text
from drivetrain.api.operations.operation import How, Operation
from drivetrain.api.operations.stateless import JoinKind
from drivetrain.api.partitioners import Partitioner
from drivetrain.api.states.keyed_task import KeyedDeclaration
from drivetrain.api.states.persistent import PersistentDeclaration
from drivetrain.api.task import Task
from drivetrain.api.types import MessageType


@dataclass(frozen=True)
class JoinStream(Operation):
    """Joins messages of two streams with the same key whose timestamps are close enough. Stateful."""

    on: tuple[str, ...]
    within_ms: int
    how: JoinKind

    @property
    def described(self) -> str:
        return f"{self.how} on {', '.join(self.on)} within {duration_text(self.within_ms)}"

    @property
    def keeps_state(self) -> bool:
        return True

    @property
    def has_late_messages(self) -> bool:
        return True

    @property
    def result_lag_ms(self) -> int:
        """A message without a match is emitted when no match is possible any more."""
        return 0 if self.how == "inner" else self.within_ms + 1


@dataclass(frozen=True)
class BufferingOperation(Operation):
    """Holds messages until the clock has passed them. Stateful."""

    @property
    def runs(self) -> tuple[How, str]:
        return "task", "messages wait for the clock as Arrow columns, in one group per bucket of keys"

    @property
    def keeps_state(self) -> bool:
        return True

    @property
    def has_late_messages(self) -> bool:
        return True

    @property
    def result_lag_ms(self) -> int:
        return 1  # see spark.compile.keyed


@dataclass(frozen=True)
class JoinAsOf(BufferingOperation):
    """Joins each message with the versions that were the newest at its timestamp. Stateful.

    Versions with equal `on` and `per` replace each other.
    """

    on: tuple[str, ...]
    per: tuple[str, ...]
    how: JoinKind

    @property
    def described(self) -> str:
        on = f"on {', '.join(self.on)} " if self.on else ""
        each = f" for each {', '.join(self.per)}" if self.per else ""
        return f"{self.how} {on}with the newest{each}, as of each message"


@dataclass(frozen=True)
class Deduplicate(BufferingOperation):
    """Passes on messages of a key that are more than a span after the last one that passed. Stateful."""

    keys: tuple[str, ...]
    within_ms: int

    @property
    def described(self) -> str:
        return f"first of {', '.join(self.keys)} within {duration_text(self.within_ms)}"


@dataclass(frozen=True)
class Process(Operation):
    """Runs a Task with a parallelism; `partitioners` are in the order of the node's inputs.

    A persistent or keyed Task has no parallelism or partitioners: its keys decide where a message goes.
    """

    task: Callable[[], Task[Any, Any]]
    task_name: str
    type: MessageType
    parallelism: int
    partitioners: tuple[Partitioner, ...]
    stateful: bool
    batched: bool
    handles_clock: bool = False
    persistent: PersistentDeclaration | None = None
    outputs: tuple[tuple[str, MessageType], ...] = ()
    """The named outputs besides the main one, with their types."""
    keyed: KeyedDeclaration | None = None
    """The states by name of a keyed Task."""
    hears_end: ClassVar[bool] = True
    realtime_obstacle: ClassVar[str | None] = "is a Task, which Spark would give its messages only in batches"

    @property
    def described(self) -> str:
        if self.persistent is not None:
            # The state alone: a Task with another name or parallelism can continue with it.
            return str(self.persistent)
        if self.keyed is not None:
            return str(self.keyed)
        return f"{self.task_name} × {self.parallelism}, by {', '.join(map(str, self.partitioners))}"

    @property
    def state_described(self) -> str:
        if self.persistent is not None:
            return self.persistent.content_text
        return self.described if self.keyed is None else self.keyed.states_text

    @property
    def state_version(self) -> tuple[int, str]:
        declared = self.persistent or self.keyed
        return (0, "") if declared is None else (declared.version, declared.rules_text)

    @property
    def runs(self) -> tuple[How, str]:
        if self.persistent is not None:
            return "task", "a persistent Task: kept in Spark's keyed state, one group per bucket of keys"
        if self.keyed is not None:
            return "task", "a keyed Task: kept in Spark's keyed state, one group per bucket of keys"
        if self.stateful:
            return "task", "a stateful Task: kept in Spark's keyed state, one group per task"
        return "arrow", "a Task: one instance per Spark partition"

    @property
    def keeps_state(self) -> bool:
        return self.stateful

    @property
    def has_late_messages(self) -> bool:
        return self.keyed is not None and self.keyed.in_order

    @property
    def can_be_asked(self) -> bool:
        return self.persistent is not None or self.keyed is not None

    @property
    def wants_clock(self) -> bool:
        return self.handles_clock and not self.stateful

    @property
    def result_lag_ms(self) -> int:
        return 1  # see spark.compile.keyed

    def user_code(self) -> Iterator[Any]:
        yield self.task
        yield from (type.python for _, type in self.outputs if type.python is not None)
        yield from (p.fn for p in self.partitioners if p.fn is not None)
