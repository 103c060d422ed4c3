"""Names of columns as users give them: one, or several.

Called by declarations that name columns.
"""

from __future__ import annotations

from collections.abc import Iterable


def names_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """The names as a tuple; a text is one name.

    >>> names_of("item"), names_of(["item", "day"])
    (('item',), ('item', 'day'))
    """
    return (given,) if isinstance(given, str) else tuple(given)
