"""A disk on which calls fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def failing(call: str, is_failing: Callable[[int], bool]) -> Iterator[list[int]]:
    """Calls of `os.rename` or `os.fsync` fail if `is_failing` is true for their number; yields those
    numbers."""
    real, calls = getattr(os, call), [0]

    def called(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        if is_failing(calls[0] - 1):
            raise OSError(5, "the disk fails")
        return real(*given, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, call, called)
        yield calls
