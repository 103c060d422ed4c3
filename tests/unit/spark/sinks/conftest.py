"""Batches of these tests are Arrow tables: nothing has to come from Spark."""

from __future__ import annotations

import pytest
from arrow_frame import ArrowFrame

from drivetrain.spark.sinks import files, kafka_outbox


@pytest.fixture(autouse=True)
def _batches_are_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (files, kafka_outbox):
        monkeypatch.setattr(module, "small_table", ArrowFrame.toArrow)
