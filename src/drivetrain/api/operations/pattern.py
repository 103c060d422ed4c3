"""The operation that finds patterns: sequences of messages of a key within a span of event time."""

from __future__ import annotations

from dataclasses import dataclass

from drivetrain.api.durations import duration_text
from drivetrain.api.expressions.columns import Column
from drivetrain.api.operations.operation import Function
from drivetrain.api.operations.stateful import BufferingOperation

Condition = Column | Function


@dataclass(frozen=True)
class PatternStep:
    """One message of a pattern, or several if `at_least` is given."""

    name: str
    condition: Condition
    at_least: int | None = None
    directly: bool = False

    def __str__(self) -> str:
        number = "" if self.at_least is None else f"at least {self.at_least} "
        order = "directly " if self.directly else ""
        return f"{order}{number}{self.name} ({condition_text(self.condition)})"


@dataclass(frozen=True)
class Without:
    """No message that fulfils the condition, at this place of a pattern."""

    condition: Condition

    def __str__(self) -> str:
        return f"without ({condition_text(self.condition)})"


@dataclass(frozen=True)
class MatchPattern(BufferingOperation):
    """Emits the sequences of messages of a key that match a pattern. Stateful."""

    keys: tuple[tuple[str, Column | Function], ...]
    parts: tuple[PatternStep | Without, ...]
    within_ms: int
    overlapping: bool

    @property
    def described(self) -> str:
        parts = ", ".join(map(str, self.parts))
        overlapping = ", overlapping" if self.overlapping else ""
        keys = ", ".join(name for name, _ in self.keys)
        return f"{parts} within {duration_text(self.within_ms)} by {keys}{overlapping}"

    @property
    def functions(self) -> tuple[Function, ...]:
        conditions = (part.condition for part in self.parts)
        return tuple(c for c in (*(key for _, key in self.keys), *conditions) if isinstance(c, Function))

    @property
    def steps(self) -> tuple[PatternStep, ...]:
        """The steps, without the parts between them."""
        return tuple(part for part in self.parts if isinstance(part, PatternStep))


def condition_text(condition: Condition) -> str:
    """A condition in a few words."""
    if isinstance(condition, Function):
        return str(getattr(condition.fn, "__name__", type(condition.fn).__name__)).strip("<>")
    return str(condition)
