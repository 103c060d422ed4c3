"""Suggests the name that was probably meant.

Called wherever a user names something that does not exist. The similarity is that of `difflib`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """The closest of `known`; None when none is close."""
    return next(iter(difflib.get_close_matches(wrong, list(known), n=1)), None)


def did_you_mean(wrong: str, known: Iterable[str], *, otherwise: str) -> str:
    """A remedy that names the closest of `known`, or `otherwise` when none is close."""
    names = list(known)
    found = nearest(wrong, names)
    if found is None:
        # The last word alone: "timeout" and "driver-memory" are often typed without their topic.
        last = wrong.rsplit(".", 1)[-1]
        found = next((name for name in names if name.rsplit(".", 1)[-1] == last), None)
    return otherwise if found is None else f'did you mean "{found}"? Otherwise {otherwise}'
