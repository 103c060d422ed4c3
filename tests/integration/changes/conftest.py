"""Every test of this folder runs on the session's Spark, in a directory of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))  # the harness is shared with the engine's tests

from harness import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def drive(spark: SparkSession, tmp_path: Path) -> Harness:
    """Runs applications in this test's directory."""
    return Harness(tmp_path)
