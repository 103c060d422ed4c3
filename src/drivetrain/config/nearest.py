"""Suggests the name that was probably meant.

Called wherever a user names something that does not exist. The similarity is that of `difflib`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(wrong: str, known: Iterable[str], *, otherwise: str) -> str:
    """A remedy that names the closest of `known`, or `otherwise` when none is close."""
    names = list(known)
    found = difflib.get_close_matches(wrong, names, n=1, cutoff=0.6)
    if not found:
        # The last word alone: "timeout" and "driver-memory" are typed without their topic often enough.
        found = [name for name in names if name.rsplit(".", 1)[-1] == wrong.rsplit(".", 1)[-1]][:1]
    return f'did you mean "{found[0]}"? Otherwise {otherwise}' if found else otherwise
