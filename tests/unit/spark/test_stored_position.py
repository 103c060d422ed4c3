"""How far a stored source has been read, and whether that is all of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.prepare.stored_sources import StoredSource


def offset(entry: int, clock_ms: int) -> str:
    return json.dumps({"entry": entry, "clock": clock_ms, "life": 0})


@pytest.mark.parametrize("is_finished", [False, True])
def test_who_has_read_the_entry_that_ends_the_store_has_read_all(tmp_path: Path, is_finished: bool) -> None:
    store = ChannelStore(str(tmp_path / "store"))
    store.append_clock(5)
    store.append_clock(FINAL_CLOCK_MS)
    # The writer sets its flag after the entry: a reader may come between the two.
    ingest: Any = SimpleNamespace(stored=7, finished=is_finished, raise_error=lambda: None)
    source: Any = SimpleNamespace(bounded=True)
    position = StoredSource(cast(Any, None), source, ingest, store, None, 1024).position
    assert position(offset(2, FINAL_CLOCK_MS)).finished
    assert not position(offset(1, 5)).finished
    assert not position(None).finished
