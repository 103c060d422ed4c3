"""Reserves standard output for one JSON object, even if other code prints.

An application file may print, and so may its functions, Java, and Spark's workers, which inherit the file
descriptor and bypass `sys.stdout`. So the descriptor itself is replaced.

Called by the commands that print JSON and run users' code.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def standard_output_reserved() -> Iterator[TextIO]:
    """Reserve standard output for the block; all other output to it goes to standard error."""
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
