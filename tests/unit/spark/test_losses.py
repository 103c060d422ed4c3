"""What is known of losses survives, and a copy of a checkpoint ends where it should; no Spark is needed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.runtime.channel.loss_record import (
    MOST,
    LossRecord,
    cut_channel,
    loss_record,
    record,
    require_batch,
    require_whole,
)
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.skipped_batches import note_not_begun, note_skipped, skipped_batches
from drivetrain.spark.batch.trimming import Trimming
from drivetrain.spark.repair.rerun_batch import cut_back
from drivetrain.spark.session.offset_log import entries_after, needed_input

SEGMENT = Segment("segments/x", 5, 10, 0, 0, 0)


def written(directory: Path, batches: int) -> ChannelStore:
    store = ChannelStore(str(directory / "channel"), fragment="p")
    for batch in range(batches):
        store.append(batch, [SEGMENT], clock_ms=batch)
    return store


def test_a_loss_is_counted_once_until_it_is_mended_and_bounded_after_that() -> None:
    known = LossRecord()
    for time in range(1, MOST + 2):
        known = known.found(3, 2).found(3, 2)
        assert (known.losses, known.open) == (2 * time, (3,))
        assert known.too_often(3) == (time > MOST)
        known = known.mended(3)
        assert (known.replays, known.open) == (time, ())
    left = known.found(4, 1).skipped(4, 7)
    assert (left.skipped_entries, left.skipped_messages, left.open, left.replays) == (1, 7, (), MOST + 1)


def test_the_record_survives_and_a_broken_one_is_none(tmp_path: Path) -> None:
    store = written(tmp_path, 1)
    assert loss_record(store) == LossRecord()
    record(store, LossRecord().found(0, 1))
    assert loss_record(ChannelStore(store.uri)).open == (0,)
    (tmp_path / "channel" / "losses.json").write_text("{")
    assert loss_record(store) == LossRecord()


def test_a_channel_that_is_cut_forgets_repairs_that_were_begun_behind_the_cut(tmp_path: Path) -> None:
    """The application has gone back, and other entries get these numbers."""
    store = written(tmp_path, 6)
    record(store, LossRecord().found(1, 1).found(4, 2))
    cut_channel(store, 3)
    known = loss_record(store)
    assert (known.open, known.losses, known.times) == ((1,), 3, {1: 1})
    cut_channel(store, 0)
    require_whole(store, 0)


def test_a_log_that_is_not_whole_is_a_loss_before_anything_is_read(tmp_path: Path) -> None:
    store = written(tmp_path, 4)
    for first in range(5):
        require_whole(store, first)
    with pytest.raises(MessageLossError, match="the log ends at 4"):
        require_whole(store, 5)
    log = tmp_path / "channel" / "log"
    (log / f"{1:020d}.json").unlink()
    require_whole(ChannelStore(store.uri), 2)
    for first in (0, 1):
        with pytest.raises(MessageLossError):
            require_whole(ChannelStore(store.uri), first)
    record(store, LossRecord().found(3, 1))
    with pytest.raises(MessageLossError, match="waits for repair"):
        require_whole(ChannelStore(store.uri), 2)


def test_a_producer_whose_log_lost_its_end_finds_that_when_it_starts(tmp_path: Path) -> None:
    written(tmp_path, 3)
    again = ChannelStore(str(tmp_path / "channel"), fragment="p")
    require_batch(again, 2)
    (tmp_path / "channel" / "log" / f"{2:020d}.json").unlink()
    with pytest.raises(MessageLossError, match="batch 1 is the last"):
        require_batch(ChannelStore(again.uri, fragment="p"), 2)


def test_a_channel_that_has_ended_lacks_no_later_batch(tmp_path: Path) -> None:
    store = written(tmp_path, 3)
    store.append_clock(FINAL_CLOCK_MS)
    again = ChannelStore(store.uri, fragment="p")
    require_batch(again, 5)  # the fragment was started again after its end


def test_input_is_kept_that_a_fragment_needs_to_make_its_output_again(tmp_path: Path) -> None:
    store = written(tmp_path, 6)
    assert store.held() == {}
    store.record_position("s", 5)
    assert store.held() == {"s": 4}, "one entry more is kept, for its clock"
    store.record_need("s", 2)
    assert store.held() == {"s": 1}
    assert store.trim(store.held()) == 1
    store.record_position("t", 1)
    assert store.held() == {"s": 1, "t": 0}
    again = ChannelStore(store.uri)
    again.record_need("s", None)
    assert store.held() == {"s": 4, "t": 0}
    again.record_need("s", None)


def of_reader(place: Path, input: ChannelStore, oldest_sampled: int | None) -> Trimming:
    """A fragment without outputs whose batches 0 to 2 have ended at the entries 2, 5 and 9 of `input`."""
    for batch, entry in enumerate((2, 5, 9)):
        offsets(place, batch, entry)
    (place / "commits").mkdir(exist_ok=True)
    (place / "commits" / "2").write_text("v1\n{}")
    trunk = SimpleNamespace(inputs=("c", None), stored={})
    letters = SimpleNamespace(tidy=list)
    return Trimming("s", trunk, place, {}, {"c": input}, letters, lambda newest: oldest_sampled)  # type: ignore[arg-type] # stubs


def test_input_is_kept_whose_late_messages_may_be_looked_at(tmp_path: Path) -> None:
    store = written(tmp_path, 12)
    store.record_position("s", 9)
    of_reader(tmp_path / "checkpoint", store, 1).note_needed()
    assert store.held() == {"s": 1}, "batch 1 begins at entry 2"
    of_reader(tmp_path / "checkpoint", store, 0).note_needed()
    assert store.held() == {"s": 0}
    (tmp_path / "checkpoint" / "offsets" / "0").unlink()
    of_reader(tmp_path / "checkpoint", store, 2).note_needed()
    assert store.held() == {"s": 4}


def test_another_version_of_a_fragment_does_not_keep_what_the_first_needed(tmp_path: Path) -> None:
    store = written(tmp_path, 12)
    store.record_position("s", 9)
    of_reader(tmp_path / "checkpoint", store, 1).note_needed()
    of_reader(tmp_path / "checkpoint", store, None).note_needed()
    assert store.held() == {"s": 8}


def offsets(checkpoint: Path, batch: int, entry: int) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    lines = ["v1", "{}", json.dumps({"entry": entry, "clock": 0, "life": 0}), "-"]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))


def test_what_is_needed_follows_from_the_oldest_batch_that_is_held(tmp_path: Path) -> None:
    for batch, entry in enumerate((2, 5, 9)):
        offsets(tmp_path / "checkpoint", batch, entry)
    inputs = ("c", None)
    assert entries_after(tmp_path / "checkpoint", 1, inputs) == {"c": 5}
    assert entries_after(tmp_path / "checkpoint", -1, inputs) == {}
    store = written(tmp_path, 3)
    assert needed_input(tmp_path / "checkpoint", inputs, [store]) == {}, "batch 0 begins at the beginning"
    store.record_position("s", 3)
    store.trim(store.positions())
    assert store.start() == 2
    assert needed_input(tmp_path / "checkpoint", inputs, [store]) == {"c": 5}
    (tmp_path / "checkpoint" / "offsets" / "0").unlink()
    (tmp_path / "checkpoint" / "offsets" / "1").unlink()
    assert needed_input(tmp_path / "checkpoint", inputs, [store]) == {"c": 9}, "older ones are forgotten"


def test_a_copy_of_a_checkpoint_ends_in_the_middle_of_the_batch(tmp_path: Path) -> None:
    own = tmp_path / "checkpoint"
    for batch in range(5):
        offsets(own, batch, batch)
    (own / "commits").mkdir()
    for batch in range(4):
        (own / "commits" / str(batch)).write_text("v1\n{}")
    state = own / "state" / "0" / "1"
    (state / "SSTs").mkdir(parents=True)
    for version in range(1, 5):
        (state / f"{version}.changelog").write_text(str(version))
        (state / f"{version}_abc.zip").write_text(str(version))
    (state / "SSTs" / "000009-abc.sst").write_text("sst")
    (state / ".4.changelog.tmp").write_text("half")
    (own / "sources" / "0").mkdir(parents=True)
    (own / "sources" / "0" / "9.compact").write_text("files")
    (own / "metadata").write_text('{"id":"own"}')
    cut_back(own, tmp_path / "aside", 2)
    found = sorted(
        str(p.relative_to(tmp_path / "aside")) for p in (tmp_path / "aside").rglob("*") if p.is_file()
    )
    assert found == sorted(
        [
            "metadata",
            "offsets/1",
            "offsets/2",
            "commits/1",
            "sources/0/9.compact",
            "state/0/1/SSTs/000009-abc.sst",
        ]
        + [f"state/0/1/{version}{kind}" for version in (1, 2) for kind in (".changelog", "_abc.zip")]
    )
    assert json.loads((tmp_path / "aside" / "metadata").read_text())["id"] != "own"


def test_batches_that_are_left_out_are_counted_once(tmp_path: Path) -> None:
    assert skipped_batches(tmp_path).batches == 0
    note_not_begun(tmp_path, 7)
    assert skipped_batches(tmp_path).not_begun == 7
    note_skipped(tmp_path, 8, 20)
    known = note_skipped(tmp_path, 8, 20)
    assert (known.batches, known.messages, known.last) == (1, 20, 8)
    note_not_begun(tmp_path, 9)
    known = note_skipped(tmp_path, 10, 5)
    assert (known.batches, known.messages, known.not_begun) == (2, 25, -1)
