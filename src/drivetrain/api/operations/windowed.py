"""Operations that group messages by keys and a window, and those for late messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drivetrain.api.durations import duration_text
from drivetrain.api.expressions.columns import Column
from drivetrain.api.operations.operation import Function, How, Operation
from drivetrain.api.states.monoids import Aggregation, Monoid
from drivetrain.api.types import MessageType
from drivetrain.api.windows import Window


@dataclass(frozen=True)
class _Grouping(Operation):
    """Groups messages by keys and a window. Stateful."""

    keys: tuple[tuple[str, Column | Function], ...]
    window: Window

    @property
    def keeps_state(self) -> bool:
        return True

    @property
    def can_be_asked(self) -> bool:
        return True

    @property
    def grouping_window(self) -> Window | None:
        return self.window

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(c for _, c in self.keys if isinstance(c, Function))

    def _grouped(self, what: str) -> str:
        return f"{what} by {', '.join(name for name, _ in self.keys) or 'everything'} in {self.window}"


@dataclass(frozen=True)
class Aggregate(_Grouping):
    """Groups by keys and a window and reduces each group. Stateful."""

    aggregations: tuple[tuple[str, Aggregation | Monoid[Any, Any]], ...]

    @property
    def described(self) -> str:
        return self._grouped(", ".join(f"{name}={a}" for name, a in self.aggregations))

    @property
    def emits_only_at_end(self) -> bool:
        """True for a global window that emits once."""
        return self.window.kind == "global" and self.window.emission == "discarding"

    def user_code(self) -> Iterator[Any]:
        yield from super().user_code()
        yield from (type(a) for _, a in self.aggregations if isinstance(a, Monoid))


@dataclass(frozen=True)
class Top(_Grouping):
    """Groups by keys and a window and emits the messages of each group with the largest values. Stateful."""

    n: int
    by: Column

    @property
    def described(self) -> str:
        return self._grouped(f"top {self.n} by {self.by}")

    @property
    def can_be_asked(self) -> bool:
        """False: its state is Spark's own form of a heap."""
        return False

    @property
    def emits_only_at_end(self) -> bool:
        """True for a global window that emits once."""
        return self.window.kind == "global" and self.window.emission == "discarding"


@dataclass(frozen=True)
class Fold(_Grouping):
    """Groups by keys and a window and folds each group with a Python function. Stateful."""

    monoid: Monoid[Any, Any]
    result: MessageType
    name: str

    @property
    def described(self) -> str:
        return self._grouped(type(self.monoid).__name__)

    @property
    def runs(self) -> tuple[How, str]:
        return "task", "a Python state: kept in Spark's keyed state, one group per bucket"

    @property
    def result_lag_ms(self) -> int:
        return 1  # see spark.compile.keyed

    def user_code(self) -> Iterator[Any]:
        yield from super().user_code()
        yield type(self.monoid)
        yield from (value for value in vars(self.monoid).values() if callable(value))


@dataclass(frozen=True)
class EarlyResults(Operation):
    """The results so far of windows that have not ended, after each batch that changes them. Stateful."""

    aggregate: Aggregate
    every_ms: int | None = None
    """How often a batch begins; None: as soon as there are messages."""

    @property
    def described(self) -> str:
        every = f" every {duration_text(self.every_ms)}" if self.every_ms else ""
        return f"so far{every}, {self.aggregate.described}"

    @property
    def state_described(self) -> str:
        return f"so far, {self.aggregate.described}"

    @property
    def interval_ms(self) -> int | None:
        return self.every_ms

    @property
    def keeps_state(self) -> bool:
        return True

    @property
    def has_late_messages(self) -> bool:
        return True

    @property
    def functions(self) -> tuple[Function, ...]:
        return self.aggregate.functions


@dataclass(frozen=True)
class LateMessages(Operation):
    """The messages that arrived too late for the windows of `of`, even with the allowed lateness."""

    of: str
    lateness_ms: int = 0

    @property
    def described(self) -> str:
        return f"messages too late for {self.of}"

    def clocked(self, id: str) -> tuple[str, ...]:
        return (self.of,)


@dataclass(frozen=True)
class LatePanes(Operation):
    """Aggregates the late messages of each batch, within the allowed lateness. Stateless."""

    aggregate: Aggregate

    @property
    def described(self) -> str:
        lateness = duration_text(self.aggregate.window.allowed_lateness_ms)
        return f"late messages of each batch, up to {lateness} late"

    def clocked(self, id: str) -> tuple[str, ...]:
        return (on_time_of(id),)


@dataclass(frozen=True)
class Refine(Operation):
    """Emits a window's whole result again when late messages change it. Stateful."""

    aggregate: Aggregate

    @property
    def described(self) -> str:
        return f"whole results again, up to {duration_text(self.aggregate.window.allowed_lateness_ms)} late"

    @property
    def keeps_state(self) -> bool:
        return True

    @property
    def input_lag_ms(self) -> int:
        """The allowed lateness, for which it keeps a window's state."""
        return self.aggregate.window.allowed_lateness_ms

    def clocked(self, id: str) -> tuple[str, ...]:
        return (id, on_time_of(id))


def on_time_of(id: str) -> str:
    """The processor that fires the windows whose late messages `id` takes; see `core.plan.lateness`."""
    return f"{id.removesuffix('-late')}-on-time"
