"""Keeps standard output for one JSON object, whoever else prints.

An application file may print, its functions may, and so may Java and Spark's workers, which inherit the
descriptor and know nothing of `sys.stdout`. So the descriptor itself is exchanged.

Called by the commands that promise JSON and run code of the user's.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def standard_output_reserved() -> Iterator[TextIO]:
    """Give standard output to the block alone; what anyone else prints there goes to standard error."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        with open(own, "w", encoding="utf-8", closefd=False) as output:
            yield output
    finally:
        sys.stdout.flush()
        os.dup2(own, 1)
        os.close(own)
