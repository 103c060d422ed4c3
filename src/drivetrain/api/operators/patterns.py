"""Patterns: sequences of messages of a key, which `group_by(...).match(...)` finds.

A pattern consists of steps, in the order of event time, and of messages that must not occur between them:

>>> unsold = sales.group_by("item").match(
...     step("dear", "price > 5"),
...     without("price < 2"),
...     step("dearer", lambda sale, so_far: sale.price > so_far.dear.price),
...     within="1 h",
...     name="unsold",
... )

A condition is a column, SQL text, or a function. A function takes a message and, if it has a second
parameter, the match so far: its attributes are the messages of the steps before, a list for a step with
`at_least`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from drivetrain.api.expressions.columns import Column
from drivetrain.api.graphs.functions import function
from drivetrain.api.location import caller
from drivetrain.api.operations import PatternStep, Without
from drivetrain.api.operators.column_arguments import as_column
from drivetrain.errors import GraphError

__all__ = ["PatternStep", "Without", "step", "without"]

MATCH_COLUMNS: Final = ("match_start", "match_end")
"""The columns that a match has besides its keys and steps."""
_MOST_PARTS: Final = 60
_MOST_REPEATS: Final = 10_000


def step(
    name: str,
    condition: Column | str | Callable[..., bool],
    *,
    at_least: int | None = None,
    directly: bool = False,
) -> PatternStep:
    """A message that fulfils a condition; its column in the match has the step's name.

    With `at_least` it is that many messages or more, until one fulfils the next step. Messages that fulfil
    neither may come between; with `directly`, none may. Raises `GraphError` for a name or number that cannot
    be used.

    >>> print(step("cheap", "price < 1", at_least=3))
    at least 3 cheap (price < 1)
    """
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise GraphError(
            "a step needs a name",
            where=f"step ({caller()})",
            expected="a name that a column can have, such as cheap",
            got=repr(name),
        )
    if at_least is not None and (type(at_least) is not int or not 1 <= at_least <= _MOST_REPEATS):
        raise GraphError(
            "a step cannot have this number of messages",
            where=f"step ({caller()})",
            expected=f"at_least= a whole number from 1 to {_MOST_REPEATS}",
            got=repr(at_least),
        )
    return PatternStep(name, _condition("step", condition), at_least, directly)


def without(condition: Column | str | Callable[..., bool]) -> Without:
    """No message that fulfils a condition: between two steps, or from the last step until time runs out.

    If this is the last part of a pattern, the pattern matches when no such message comes within the pattern's
    `within`.

    >>> print(without("price < 2"))
    without (price < 2)
    """
    return Without(_condition("without", condition))


def require_pattern(parts: Sequence[Any], keys: Sequence[str], within_ms: int) -> None:
    """Raise `GraphError` for parts that do not form a pattern, or that need names which are taken."""

    def refuse(what: str, expected: str, got: str) -> GraphError:
        return GraphError(what, where=f"match ({caller()})", expected=expected, got=got)

    for part in parts:
        if not isinstance(part, PatternStep | Without):
            raise refuse("not a part of a pattern", "patterns.step(...) or patterns.without(...)", repr(part))
    if not parts or not isinstance(parts[0], PatternStep):
        raise refuse(
            "a pattern begins with a step", "patterns.step(...)", str(parts[0]) if parts else "nothing"
        )
    if len(parts) == 1 and parts[0].at_least in (None, 1):
        raise refuse("one step is not a pattern", "several steps, at_least=, or filter(...)", str(parts[0]))
    if len(parts) > _MOST_PARTS:
        raise refuse("a pattern with too many parts", f"at most {_MOST_PARTS}", str(len(parts)))
    if within_ms == 0:
        raise refuse("a pattern needs time", 'within= more than 0, such as "10 min"', "0")
    taken = [*keys, *MATCH_COLUMNS]
    for part in parts:
        if isinstance(part, PatternStep):
            if part.name in taken:
                raise refuse("two columns of a match have one name", "another name", f"a step {part.name!r}")
            taken.append(part.name)


def _condition(operator: str, condition: Any) -> Any:
    if isinstance(condition, Column | str):
        return as_column(condition)
    made = function(operator, caller(), condition, bool)
    if len(made.parameters) not in (1, 2):
        raise GraphError(
            "not a condition of a message",
            where=f"{operator} ({caller()})",
            expected="a function of the message, or of the message and the match so far",
            got=f"{len(made.parameters)} parameters",
        )
    return made
