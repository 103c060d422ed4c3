"""How far a query has taken its inputs, by Spark's offsets."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.core.checkpoint.transaction import Action, Command
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.fragment_query import _clock_until as clock_until
from drivetrain.spark.batch.query_inputs import QueryInputs
from drivetrain.spark.session.offset_log import needed_input


@pytest.fixture
def store(tmp_path: Path) -> ChannelStore:
    return ChannelStore(str(tmp_path / "channel"), fragment="f")


def inputs_of(store: ChannelStore, tmp_path: Path, entry: int | None) -> QueryInputs:
    """Those of a fragment that reads one channel, and comes to this entry next."""
    trunk: Any = SimpleNamespace(inputs=["c"], stored={}, sources={})
    inputs = QueryInputs("g", trunk, {"c": store}, tmp_path / "checkpoint")
    if entry is not None:
        clock_ms = store.entry(entry - 1).clock_ms if entry else 0
        inputs.offsets = [json.dumps({"entry": entry, "clock": clock_ms, "life": 0})]
    return inputs


def test_a_channel_is_read_when_its_final_clock_was_taken(store: ChannelStore, tmp_path: Path) -> None:
    store.append(0, [], clock_ms=5)
    assert not inputs_of(store, tmp_path, 1).are_read, "its producer goes on"
    store.append(1, [], clock_ms=FINAL_CLOCK_MS)
    assert not inputs_of(store, tmp_path, None).are_read
    assert not inputs_of(store, tmp_path, 1).are_read
    assert inputs_of(store, tmp_path, 2).are_read
    for round in (3, 4):  # the producer was asked before it knew that it had finished
        store.append_barrier(Command(Action.PREPARE, round, round, 1))
    assert not inputs_of(store, tmp_path, 1).are_read
    assert inputs_of(store, tmp_path, 2).are_read
    assert inputs_of(store, tmp_path, 4).are_read


def test_a_final_clock_that_is_said_again_does_not_open_a_channel_that_was_read(
    store: ChannelStore, tmp_path: Path
) -> None:
    store.append(0, [], clock_ms=FINAL_CLOCK_MS)
    store.append(1, [], clock_ms=FINAL_CLOCK_MS)  # of a producer that was started again
    assert inputs_of(store, tmp_path, 1).are_read


def test_a_channel_that_was_read_stays_so_when_its_last_entry_is_lost(
    store: ChannelStore, tmp_path: Path
) -> None:
    store.append(0, [], clock_ms=FINAL_CLOCK_MS)
    inputs = inputs_of(store, tmp_path, 1)
    (tmp_path / "channel" / "log" / f"{0:020d}.json").write_text("{")
    assert inputs.are_read


def test_what_a_batch_takes_of_a_channel_is_the_bytes_of_its_entries(
    store: ChannelStore, tmp_path: Path
) -> None:
    store.append(0, [], clock_ms=5)
    inputs = inputs_of(store, tmp_path, 0)
    taken = inputs.taken([json.dumps({"entry": 1, "clock": 5, "life": 0})])
    assert taken == {"c": 0}
    assert inputs.bytes_of(taken) == 0
    assert inputs.taken([None]) == {}
    assert inputs.taken([json.dumps({"entry": 7, "clock": 5, "life": 0})]) == {"c": 0}


def test_of_a_channel_whose_oldest_entry_is_lost_all_input_is_needed(
    store: ChannelStore, tmp_path: Path
) -> None:
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for batch in range(4):
        (offsets / str(batch)).write_text(f'v1\n{{}}\n{{"entry": {batch + 1}}}')
        store.append(batch, [], clock_ms=batch)
    store.trim({"g": 2})  # type: ignore[dict-item] # a plain name
    assert needed_input(tmp_path / "checkpoint", ("c",), [store]) == {"c": 2}
    (tmp_path / "channel" / "log" / f"{2:020d}.json").write_text("{")
    assert needed_input(tmp_path / "checkpoint", ("c",), [ChannelStore(store.uri)]) == {}


def test_the_clock_of_a_lost_entry_is_that_of_the_one_before(store: ChannelStore, tmp_path: Path) -> None:
    for batch in range(3):
        store.append(batch, [], clock_ms=10 * batch)
    assert clock_until(store, 1) == 10
    (tmp_path / "channel" / "log" / f"{1:020d}.json").write_text("{")
    assert clock_until(ChannelStore(store.uri), 1) == 0, "never too late"
