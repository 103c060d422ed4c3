"""Names of columns as users give them: one, or several.

Called by declarations that name columns.
"""

from __future__ import annotations

from collections.abc import Iterable

from drivetrain.api.location import caller
from drivetrain.errors import GraphError


def names_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """The names as a tuple; a text is one name. Raises `GraphError` for anything else.

    >>> names_of("item"), names_of(["item", "day"])
    (('item',), ('item', 'day'))
    """
    try:
        names = (given,) if isinstance(given, str) else tuple(given)
    except TypeError:  # it cannot be iterated
        names = (None,)  # type: ignore[assignment]  # refused below
    if not all(isinstance(name, str) for name in names):
        raise GraphError(
            "not names of columns",
            where=str(caller()),
            expected='"item", or several: ["item", "day"]; rename columns that are called differently',
            got=repr(given),
        )
    return names
