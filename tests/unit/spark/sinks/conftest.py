"""Batches of these tests are Arrow tables: nothing has to come from Spark."""

from __future__ import annotations

import pytest
from arrow_frame import ArrowFrame

from drivetrain.spark.measure import small_batches


@pytest.fixture(autouse=True)
def _batches_are_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_batches, "small_table", ArrowFrame.toArrow)
