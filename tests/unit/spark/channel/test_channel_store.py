"""The channel on disk: dense whatever happens, cheap to poll, and never read wrongly."""

from __future__ import annotations

import os
import random
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from drivetrain.core.channel.channel_log import (
    ClockMovedBackError,
    Segment,
    StaleIncarnationError,
    SubscriberId,
    TrimmedError,
)
from drivetrain.core.checkpoint.transaction import Action, Command
from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.errors import DiskFullError, OutputError
from drivetrain.runtime.channel import files as files_module
from drivetrain.runtime.channel.files import ChannelFiles
from drivetrain.runtime.channel.segments import REMADE, MessageLossError, read_segment, write_segment
from drivetrain.runtime.channel.store import ChannelStore

SCHEMA = pa.schema([("v", pa.int64()), ("__ts", pa.timestamp("us", tz="UTC"))])


def prepare(round: int) -> Command:
    """The barrier of a try."""
    return Command(Action.PREPARE, round, round, 1)


def some_segment(store: ChannelStore, *values: int) -> Segment:
    batch = pa.record_batch(
        [pa.array(values), pa.array([v * 1000 for v in values], SCHEMA.field(1).type)], schema=SCHEMA
    )
    return write_segment(store.files, "t", [batch])


def values_of(store: ChannelStore) -> list[int]:
    fresh = ChannelStore(store.uri)
    return [
        value
        for entry in fresh.entries(fresh.start())
        for segment in entry.segments
        for batch in read_segment(fresh.files, segment)
        for value in batch.column(0).to_pylist()
    ]


@pytest.fixture
def store(tmp_path: Path) -> ChannelStore:
    return ChannelStore(str(tmp_path / "a channel"), fragment="f")


def test_what_was_appended_is_read_in_order_by_another_process(store: ChannelStore) -> None:
    store.append(0, [some_segment(store, 1, 2), some_segment(store, 3)], clock_ms=1)
    store.append(1, [], clock_ms=2)
    store.append_barrier(prepare(9))
    store.append(2, [some_segment(store, 4)], clock_ms=3)
    reader = ChannelStore(f"file://{store.uri}".replace(" ", "%20"))
    assert [(e.number, e.batch_id, e.clock_ms, e.barrier, e.rows) for e in reader.entries(0)] == [
        (0, 0, 1, None, 3),
        (1, 1, 2, None, 0),
        (2, 1, 2, prepare(9), 0),
        (3, 2, 3, None, 1),
    ]
    assert [e.number for e in reader.entries(1, 2)] == [1]
    assert values_of(store) == [1, 2, 3, 4]


def test_an_empty_channel_has_no_entries(store: ChannelStore) -> None:
    assert (store.length(), store.last(), store.entries(0), store.start(), store.last_batch()) == (
        0,
        None,
        [],
        0,
        -1,
    )


def test_a_replayed_batch_adds_nothing_and_its_files_are_orphans(store: ChannelStore) -> None:
    store.append(0, [some_segment(store, 1)], clock_ms=1)
    restarted = ChannelStore(store.uri, fragment="f")
    assert restarted.append(0, [some_segment(store, 1)], clock_ms=1) is None
    assert restarted.last_batch() == 0
    assert values_of(store) == [1]
    assert restarted.clean_orphans() == 1
    assert restarted.clean_orphans() == 0
    assert values_of(store) == [1]


def test_a_producer_that_starts_again_leaves_a_subscriber_at_work_alone(store: ChannelStore) -> None:
    store.append(0, [some_segment(store, 1)], clock_ms=1)
    subscriber = ChannelStore(store.uri)
    subscriber.record_position("s", 0)
    folder = Path(store.uri) / "positions"
    (folder / ".s.0.tmp").write_bytes(b"1")  # it is just about to replace its position
    (folder / ".s-2.0.tmp").write_bytes(b"1")
    assert ChannelStore(store.uri, fragment="f").clean_orphans() == 0
    subscriber.record_position("s", 1)
    assert (folder / ".s.0.tmp").exists(), "an own file of this life is not a dead one's"
    ChannelStore(store.uri).record_position("s", 1)  # its next life
    assert sorted(p.name for p in folder.iterdir()) == [".s-2.0.tmp", "s"]


def test_a_producer_elsewhere_trims_what_the_reader_has_passed_and_the_reader_reads_on(
    store: ChannelStore,
) -> None:
    reader = ChannelStore(store.uri)
    for n in range(4):
        store.append(n, [some_segment(store, n)], clock_ms=n)
    assert reader.length() == 4
    reader.record_position("s", 3)
    assert store.trim(store.positions()) == 3
    assert reader.last() == store.last()
    store.append(4, [some_segment(store, 4)], clock_ms=9)
    assert [e.number for e in reader.entries(3)] == [3, 4]
    late_producer = ChannelStore(store.uri, fragment="f", incarnation=0)
    store_of_next_life = ChannelStore(store.uri, fragment="f")
    store_of_next_life.append(5, [], clock_ms=10)
    with pytest.raises(StaleIncarnationError):
        late_producer.append(6, [], clock_ms=11)


def test_a_reader_notices_news_without_listing_the_log_again(
    store: ChannelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(0, [], clock_ms=1)
    reader = ChannelStore(store.uri)
    assert reader.length() == 1
    monkeypatch.setattr(ChannelFiles, "names", lambda *_: pytest.fail("listed"))
    for batch_id in range(1, 4):
        store.append(batch_id, [], clock_ms=1)
    assert reader.length() == 4
    assert [e.batch_id for e in reader.entries(1)] == [1, 2, 3]


def test_a_newer_producer_fences_the_older_one(store: ChannelStore) -> None:
    store.append(0, [], clock_ms=1)
    newer = ChannelStore(store.uri, fragment="f")
    assert newer.append(1, [], clock_ms=2) is not None
    with pytest.raises(StaleIncarnationError):
        store.append(1, [], clock_ms=2)
    with pytest.raises(StaleIncarnationError):
        store.append_clock(5)
    assert newer.append(2, [], clock_ms=3) is not None
    assert [e.incarnation for e in newer.entries(0)] == [0, 1, 1]


def test_a_producer_that_wakes_when_its_number_has_been_trimmed_is_refused_and_leaves_no_entry(
    store: ChannelStore,
) -> None:
    for n in range(2):
        store.append(n, [some_segment(store, n)], clock_ms=n)
    newer = ChannelStore(store.uri, fragment="f")
    for n in range(2, 5):
        newer.append(n, [some_segment(store, n)], clock_ms=n)
    reader = ChannelStore(store.uri)
    reader.record_position("s", 5)
    newer.trim(newer.positions())
    with pytest.raises(StaleIncarnationError, match="another producer has continued the channel"):
        store.append(2, [some_segment(store, 9)], clock_ms=9)
    assert ChannelStore(store.uri).numbers() == [4]
    with pytest.raises(StaleIncarnationError):
        store.append(2, [some_segment(store, 9)], clock_ms=9)
    assert newer.append(5, [], clock_ms=5) is not None


def test_a_producer_appends_after_an_entry_that_was_lost(store: ChannelStore) -> None:
    for n in range(2):
        store.append(n, [some_segment(store, n)], clock_ms=n)
    store.files.delete("log/00000000000000000001.json")
    assert store.append(2, [], clock_ms=2) is not None, "a reader has it repaired"
    assert ChannelStore(store.uri).numbers() == [0, 2]


def test_racing_producers_leave_one_dense_log(tmp_path: Path) -> None:
    stores = [ChannelStore(str(tmp_path), fragment="f", incarnation=1) for _ in range(4)]
    added: list[Any] = []

    def produce(store: ChannelStore) -> None:
        added.extend(filter(None, (store.append(n, [], clock_ms=0) for n in range(30))))

    threads = [threading.Thread(target=produce, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [e.batch_id for e in ChannelStore(str(tmp_path)).entries(0)] == list(range(30))
    assert sorted(e.batch_id for e in added) == list(range(30))


def test_the_clock_never_goes_back_through_a_restart(store: ChannelStore) -> None:
    store.append(0, [], clock_ms=10)
    restarted = ChannelStore(store.uri, fragment="f")
    with pytest.raises(ClockMovedBackError):
        restarted.append(1, [], clock_ms=9)
    assert restarted.append_clock(10) is None
    assert restarted.append_clock(11) is not None


def test_trimming_keeps_what_somebody_needs_and_survives_a_restart(store: ChannelStore) -> None:
    for n in range(6):
        store.append(n, [some_segment(store, n)], clock_ms=n)
    store.record_position("slow", 2)
    store.record_position("fast", 5)
    assert store.positions() == {"slow": 2, "fast": 5}
    assert store.trim(store.positions()) == 2
    assert store.trim({"slow": 6, "fast": 6}, checkpoint=4) == 2  # type: ignore[dict-item] # plain names
    assert values_of(store) == [4, 5]
    assert len(os.listdir(Path(store.uri) / "segments")) == 2
    restarted = ChannelStore(store.uri, fragment="f")
    assert (restarted.start(), restarted.length(), restarted.last_batch()) == (4, 6, 5)
    assert restarted.append(5, [], clock_ms=5) is None
    assert restarted.append(6, [], clock_ms=6) is not None
    assert store.trim({"slow": 99}) == 2  # type: ignore[dict-item] # never the last one
    with pytest.raises(TrimmedError, match="entry 3"):
        restarted.entry(3)


def test_a_timestamp_search_names_the_entries_that_can_hold_it(store: ChannelStore) -> None:
    for n, values in enumerate([(1, 5), (9, 2), (3, 4)]):
        store.append(n, [some_segment(store, *values)], clock_ms=0)
    assert [e.number for e in store.since(5)] == [0, 1]
    assert [e.number for e in store.since(10)] == []


def test_a_damaged_entry_is_named(store: ChannelStore) -> None:
    store.append(0, [], clock_ms=1)
    path = next((Path(store.uri) / "log").iterdir())
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(MessageLossError, match=path.name):
        ChannelStore(store.uri).last()


def test_a_gap_in_the_log_is_found_by_whoever_waits_for_the_next_entry(store: ChannelStore) -> None:
    store.append(0, [some_segment(store, 1)], clock_ms=1)
    reader = ChannelStore(store.uri)
    assert reader.length() == 1
    for batch in (1, 2):
        store.append(batch, [some_segment(store, batch + 1)], clock_ms=1)
    lost = store.entry(1)
    path = Path(store.uri) / "log" / f"{1:020d}.json"
    path.unlink()
    with pytest.raises(MessageLossError, match=path.name):
        reader.length()
    reader.put_back(lost)
    assert reader.length() == 3
    assert values_of(store) == [1, 2, 3]


def test_segments_before_a_gap_in_the_log_are_no_orphans(store: ChannelStore) -> None:
    for batch in range(4):
        store.append(batch, [some_segment(store, batch)], clock_ms=1)
    log = Path(store.uri) / "log"
    (log / f"{1:020d}.json").unlink()
    (log / f"{2:020d}.json").write_text("{")
    lost = [store.entry(number).segments[0].path for number in (1, 2)]
    again = ChannelStore(store.uri)
    again.clean_orphans()
    left = {f"segments/{name}" for name in again.files.names("segments")}
    assert left == {store.entry(number).segments[0].path for number in (0, 3)}
    assert not left & set(lost)


def test_what_was_put_back_is_trimmed_and_not_what_was_there_before(store: ChannelStore) -> None:
    old = some_segment(store, 1)
    for batch, segments in enumerate(([old], [])):
        store.append(batch, segments, clock_ms=1)
    (Path(store.uri) / old.path).unlink()
    again = ChannelStore(store.uri)
    batch = pa.record_batch([pa.array([1]), pa.array([1000], SCHEMA.field(1).type)], schema=SCHEMA)
    new = write_segment(again.files, "t", [batch], REMADE)
    again.put_back(msgspec.structs.replace(again.entry(0), segments=(new,)))
    assert values_of(store) == [1]
    assert store.trim({SubscriberId("s"): 2}) == 1
    assert not (Path(store.uri) / new.path).exists()


@pytest.mark.parametrize("damage", ["missing", "short", "changed", "empty"])
def test_a_damaged_segment_is_message_loss_that_names_the_file(store: ChannelStore, damage: str) -> None:
    segment = some_segment(store, 1, 2, 3)
    path = Path(store.uri) / segment.path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"short": content[:-8], "changed": content, "empty": b""}[damage])
    with pytest.raises(MessageLossError, match=segment.path):
        list(read_segment(store.files, segment))


def test_a_folder_that_cannot_be_written_is_said_with_the_remedy(
    store: ChannelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ChannelFiles, "_write_local", refuse)
    with pytest.raises(OutputError, match="remedy"):
        store.append(0, [], clock_ms=1)


def test_a_full_disk_is_said_and_publishes_nothing(
    store: ChannelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(0, [], clock_ms=1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files_module.os, "fsync", full)
        with pytest.raises(DiskFullError):
            store.append(1, [], clock_ms=2)
    assert ChannelStore(store.uri).length() == 1
    assert store.append(1, [], clock_ms=2) is not None


def test_a_long_life_keeps_few_entries_in_memory_and_all_on_disk(
    store: ChannelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.runtime.channel.store._KEPT_ENTRIES", 8)
    for n in range(40):
        store.append(n, [some_segment(store, n)], clock_ms=n)
        assert len(store._cache) <= 8
        assert len(store._log().entries) <= 8
    assert store.append(39, [], clock_ms=39) is None
    assert [e.number for e in store.entries(0)] == list(range(40))
    assert [e.number for e in store.since(30)] == list(range(30, 40))
    assert store.trim({"s": 30}) == 30  # type: ignore[dict-item] # a plain name
    assert store.append(39, [], clock_ms=39) is None
    assert store.append(40, [], clock_ms=40) is not None


def test_a_position_that_a_power_cut_emptied_holds_on_to_everything(store: ChannelStore) -> None:
    store.record_position("s", 5)
    (Path(store.uri) / "positions" / "s").write_bytes(b"")
    assert store.positions() == {"s": 0}


class MachineDiedError(BaseException):
    """Not an Exception: nothing may catch it, as nothing catches a power cut."""


class DyingDisk:
    """Dies at its `at`-th call that changes the disk; a write may have got half way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.left = at
        self.dead = False
        for name in ("link", "unlink", "rename", "replace", "fsync", "mkdir"):
            monkeypatch.setattr(files_module.os, name, self._mortal(getattr(os, name)))
        monkeypatch.setattr(ChannelFiles, "_write_local", self._mortal_write(ChannelFiles._write_local))
        monkeypatch.setattr(ChannelFiles, "delete", self._mortal(ChannelFiles.delete))

    def _step(self) -> bool:
        self.left -= 1
        self.dead = self.dead or self.left < 0
        return self.dead

    def _mortal(self, call: Any) -> Any:
        def attempt(*args: Any, **options: Any) -> Any:
            if self._step():
                raise MachineDiedError
            return call(*args, **options)

        return attempt

    def _mortal_write(self, write: Any) -> Any:
        def attempt(files: ChannelFiles, full: str, content: Any) -> None:
            if self._step():
                if self.left == -1:  # the write under way at that moment
                    Path(full).write_bytes(bytes(memoryview(content))[: len(memoryview(content)) // 2])
                raise MachineDiedError
            write(files, full, content)

        return attempt


def produce(uri: str) -> None:
    store = ChannelStore(uri, fragment="f")
    store.clean_orphans()
    for n in range(4):
        store.append(n, [some_segment(store, 10 * n), some_segment(store, 10 * n + 1)], clock_ms=n)
        if n == 2:
            store.trim({"reader": 2})  # type: ignore[dict-item] # a plain name
    store.append_clock(9)


def test_a_crash_at_any_point_leaves_a_readable_prefix_and_a_rerun_completes_it(tmp_path: Path) -> None:
    undisturbed = str(tmp_path / "undisturbed")
    produce(undisturbed)
    complete = values_of(ChannelStore(undisturbed))
    assert complete == [20, 21, 30, 31]
    at = 0
    while True:
        uri = str(tmp_path / f"crash-{at}")
        with pytest.MonkeyPatch.context() as patch:
            disk = DyingDisk(patch, at)
            with suppress(MachineDiedError):
                produce(uri)
        found = values_of(ChannelStore(uri))
        assert found in (
            [],
            [0, 1],
            [0, 1, 10, 11],
            [0, 1, 10, 11, 20, 21],
            [10, 11, 20, 21],
            [20, 21],
            complete,
        )
        produce(uri)
        assert values_of(ChannelStore(uri)) == complete, f"crash at call {at}"
        last = ChannelStore(uri).last()
        assert last is not None
        assert (last.clock_ms, last.batch_id) == (9, 3)
        ChannelStore(uri, fragment="f").clean_orphans()
        assert len(os.listdir(Path(uri) / "segments")) == 4
        assert not [name for name in os.listdir(Path(uri) / "log") if name.endswith(".tmp")]
        if not disk.dead:
            break
        at += 1
    assert at > 40  # every step of it was a crash once


@pytest.mark.parametrize("type_name", ["renaming", "object store"])
def test_other_file_systems_behave_the_same(type_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = pafs._MockFileSystem()
    if type_name == "object store":
        monkeypatch.setattr(files_module, "_OBJECT_STORES", frozenset({"mock"}))
        filesystem.create_dir("root/log", recursive=True)  # the mock wants folders, object stores do not
        filesystem.create_dir("root/segments", recursive=True)
        filesystem.create_dir("root/positions", recursive=True)
    producer = ChannelStore("root", fragment="f", filesystem=filesystem)
    rng = random.Random(1)
    written: list[int] = []
    for n in range(5):
        values = [rng.randrange(100) for _ in range(3)]
        producer.append(n, [some_segment(producer, *values)], clock_ms=n)
        written += values
    reader = ChannelStore("root", filesystem=filesystem)
    assert reader.length() == 5
    found = [
        value
        for entry in reader.entries(0)
        for segment in entry.segments
        for batch in read_segment(reader.files, segment)
        for value in batch.column(0).to_pylist()
    ]
    assert found == written
    late = ChannelStore("root", fragment="f", incarnation=0, filesystem=filesystem)
    assert late.append(4, [], clock_ms=4) is None
    assert producer.append(5, [], clock_ms=5) is not None
    assert late.append(6, [], clock_ms=6) is not None  # found number 5 taken, and took the next
    assert reader.length() == 7
    reader.record_position("s", 3)
    assert producer.trim(producer.positions()) == 3
    assert ChannelStore("root", filesystem=filesystem).start() == 3


def test_a_barrier_stands_once_behind_what_is_there(store: ChannelStore) -> None:
    store.append_barrier(prepare(1))
    store.append(0, [some_segment(store, 1)], clock_ms=7)
    assert store.append_barrier(prepare(2)) is not None
    assert store.append_barrier(prepare(2)) is None
    assert ChannelStore(store.uri, fragment="f").append_barrier(prepare(2)) is None
    told = [
        (e.batch_id, e.clock_ms, None if e.barrier is None else e.barrier.round) for e in store.entries(0)
    ]
    assert told == [(-1, NO_CLOCK_MS, 1), (0, 7, None), (0, 7, 2)]


def test_a_channel_that_is_cut_ends_there_and_its_batches_can_come_again(store: ChannelStore) -> None:
    for batch in range(4):
        store.append(batch, [some_segment(store, batch)], clock_ms=batch)
    assert store.cut(2) == 2
    assert store.cut(2) == 0
    again = ChannelStore(store.uri, fragment="f")
    assert again.append(3, [some_segment(again, 9)], clock_ms=5) is not None
    assert values_of(again) == [0, 1, 9]
    assert [e.number for e in again.entries(0)] == [0, 1, 2]
    assert again.clean_orphans() == 0
