"""`reduce` and `fold` as monoids, so that the code for user-defined monoids runs them too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drivetrain.api.states.monoids import Monoid

_NOTHING = "drivetrain: no message yet"


@dataclass(frozen=True)
class ReduceMonoid(Monoid[Any, Any]):
    """Joins messages by an associative function; the state of no messages is a marker."""

    fn: Callable[[Any, Any], Any]

    def zero(self) -> Any:
        """The marker for "nothing yet", compared by value, not by identity."""
        return (_NOTHING,)

    def add(self, state: Any, message: Any) -> Any:
        """The reduction of the state and one more message."""
        return self.plus(state, message)

    def plus(self, left: Any, right: Any) -> Any:
        """The reduction of both sides."""
        if _is_nothing(left):
            return right
        return left if _is_nothing(right) else self.fn(left, right)

    def result(self, state: Any) -> Any:
        """The state itself: a group always has a message."""
        return state


@dataclass(frozen=True)
class FoldMonoid(Monoid[Any, Any]):
    """Folds messages into a state; states never merge (`Grouped.fold` refuses sessions)."""

    start: Callable[[], Any]
    fn: Callable[[Any, Any], Any]

    def zero(self) -> Any:
        """The result of the user's `zero`."""
        return self.start()

    def add(self, state: Any, message: Any) -> Any:
        """The result of the user's function."""
        return self.fn(state, message)

    def plus(self, left: Any, right: Any) -> Any:
        """Raises: a fold cannot merge two states."""
        raise TypeError("a fold cannot merge two states; use reduce or a Monoid")

    def result(self, state: Any) -> Any:
        """The state itself."""
        return state


def _is_nothing(state: Any) -> bool:
    return isinstance(state, tuple) and len(state) == 1 and state[0] == _NOTHING
