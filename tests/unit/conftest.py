"""Unit tests do not wait for the disk.

A process that a test ends loses nothing that it has written, synced or not. Other tests observe the calls
to check that files are synced, and before which effects.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _syncing_takes_no_time() -> Iterator[None]:
    """Only check that the file is open, as `fsync` does; other folders of tests do sync."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield
