"""How many results of earlier messages a batch may have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain import Application, agg, sinks, sources, windows
from drivetrain.api.operations import Operation
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.spark.batch.held_rows import held_rows
from drivetrain.spark.channel.watermark import watermark_of

MIDDLE, END = watermark_of(0), watermark_of(FINAL_CLOCK_MS)


def operation(kind: str) -> Operation:
    app = Application("held")
    read = app.read(sources.json("in", schema="at timestamp, n bigint", event_time="at"))
    if kind == "deduplication":
        read.deduplicate("n", within="1 s", name="it").sink(sinks.none())
    else:
        read.window(windows.tumbling("1 s")).aggregate(step="it", n=agg.count()).sink(sinks.none())
    return app.graph().nodes["it"].operation


def query(*rows: int) -> Any:
    states = [SimpleNamespace(numRowsTotal=n, memoryUsedBytes=0, customMetrics={}) for n in rows]
    return SimpleNamespace(lastProgress=SimpleNamespace(stateOperators=states))


@pytest.mark.parametrize(
    ("kind", "mode", "watermark_ms", "newest", "expected"),
    [
        ("window", "append", MIDDLE, 5, 5),
        ("window", "append", MIDDLE, None, 0),
        ("window", "append", END, 5, 30),
        ("window", "complete", END, None, 30),
        ("window", "update", END, 5, 0),
        ("deduplication", "append", END, 5, 0),
    ],
)
def test_it_is_the_state_of_windows_and_all_of_it_at_the_end(
    kind: str, mode: str, watermark_ms: int, newest: int | None, expected: int
) -> None:
    assert held_rows(operation(kind), mode, watermark_ms, newest, query(10, 20)) == expected


def test_it_is_none_where_nothing_is_known() -> None:
    assert held_rows(None, "append", END, 5, query(10)) == 0
    assert held_rows(operation("window"), "append", END, None, None) == 0
    assert held_rows(operation("window"), "append", END, 5, SimpleNamespace(lastProgress=None)) == 0  # type: ignore[arg-type]
