"""How often a batch asks Java: each call takes time from both processes, in every batch."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import py4j.clientserver
import pytest
from pyspark.sql import DataFrame, SparkSession

import drivetrain
from drivetrain import Application, sinks, sources
from drivetrain.config import Config
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery

MOST_CALLS = 45
BATCHES = 4


def test_a_batch_asks_java_a_bounded_number_of_times(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expressions that are built for each batch must be text, which is one call, whatever is in it."""
    (tmp_path / "in").mkdir()
    for n in range(BATCHES):
        lines = [json.dumps({f"c{i}": str(i) for i in range(20)} | {"n": n}) for _ in range(20)]
        (tmp_path / "in" / f"{n}.jsonl").write_text("\n".join(lines))
    columns = ", ".join(f"c{i} string" for i in range(20))
    app = Application("many-columns")
    stream = app.read(sources.json(str(tmp_path / "in"), schema=f"{columns}, n bigint"))
    stream.sink(sinks.json(str(tmp_path / "out")))
    calls = _counted_calls(monkeypatch)
    sets = {"run.max-batch-bytes": "1 KiB", "state.dir": str(tmp_path / "state")}

    drivetrain.run(app, Config.load(None, {}, sets))

    assert len(calls) >= BATCHES
    assert calls[-1] <= MOST_CALLS, calls


def _counted_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The list to which the number of calls of each batch will be added; without those that free objects."""
    calls: list[int] = []
    here = threading.local()
    send, on_batch = py4j.clientserver.JavaClient.send_command, MicroBatchQuery._on_batch

    def counting(self: Any, command: str, *args: Any, **options: Any) -> Any:
        if not command.startswith("m\n"):
            here.calls = getattr(here, "calls", 0) + 1
        return send(self, command, *args, **options)

    def batch(self: MicroBatchQuery, df: DataFrame, batch_id: int) -> None:
        here.calls = 0
        on_batch(self, df, batch_id)
        calls.append(here.calls)

    monkeypatch.setattr(py4j.clientserver.JavaClient, "send_command", counting)
    monkeypatch.setattr(MicroBatchQuery, "_on_batch", batch)
    return calls
