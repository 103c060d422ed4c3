"""Messages that were read are read again: from where, in parts, and into the channel of a new fragment."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.fs as pafs
import pytest
from test_flow_book import CHANNEL, World

from drivetrain.api.connectors.kafka import Kafka
from drivetrain.api.sources import Generator
from drivetrain.connectors.files.file_log import FileLog
from drivetrain.connectors.files.opened_files import ArrowFiles
from drivetrain.connectors.in_process.opened_generator import OpenedGenerator
from drivetrain.connectors.kafka.opened_kafka import OpenedKafka
from drivetrain.connectors.kafka.start_and_end import Places
from drivetrain.core.channel.channel_log import Segment
from drivetrain.errors import UserError
from drivetrain.runtime.channel.beginning import ChannelBeginning, former_producer
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.file_locations import FoundFile
from drivetrain.spark.connector.source import OpenedSource, SourceContext
from drivetrain.spark.prepare.stored_sources import StoredSource
from drivetrain.spark.repair.damage import rebuilt_up_to_the_beginning

NOTHING: Any = None


def parts_of(source: OpenedSource, from_ms: int, end: str, fraction: float) -> list[str | None]:
    """The offsets at which parts begin and end."""
    found = [source.history_start(from_ms, end)]
    while found[-1] != end:
        found.append(source.history_part(found[-1], end, fraction))
        assert len(found) < 100, "no part gets further"
    return found


def context(**more: Any) -> SourceContext:
    return SourceContext(NOTHING, "nowhere", "app", "source", **more)


def test_rows_of_a_generator_begin_with_the_first_of_that_time_and_not_after_the_end() -> None:
    made = Generator(rows=None, start="1970-01-01", step_us=1_000_000, columns={}, rate_per_s=None)
    source = OpenedGenerator(NOTHING, made, 0, context(max_batch_rows=100))
    found = parts_of(source, 10_000, '{"rows": 40}', 0.1)
    assert found == ['{"rows": 10}', '{"rows": 20}', '{"rows": 30}', '{"rows": 40}']
    assert source.history_start(10**9, '{"rows": 40}') == '{"rows": 40}'


def test_files_are_read_from_the_first_and_those_that_came_since_do_not_count(tmp_path: Path) -> None:
    log = FileLog(pafs.LocalFileSystem(), str(tmp_path))
    log.append((FoundFile(f"f{n}", 10), False) for n in range(3))
    plan: Any = SimpleNamespace(state_dir=str(tmp_path), max_batch_bytes=16)
    declared: Any = SimpleNamespace(bounded=False, watch=True, on_bad_record="fail")
    source = ArrowFiles(NOTHING, declared, log, plan, has_end_row=False)
    log.append([(FoundFile("later", 10), False)])
    end = '{"bytes": 25, "end": 0}'
    assert parts_of(source, 0, end, 1.0) == ['{"bytes": 0, "end": 0}', '{"bytes": 16, "end": 0}', end]


def test_every_partition_of_a_topic_gets_further_by_the_same_share() -> None:
    places = Places({("t", 0): 0, ("t", 1): 50}, None, {"t": "id"}, {("t", 0): 0, ("t", 1): 1})
    admin: Any = SimpleNamespace(offsets=lambda asked, _: dict.fromkeys(asked, 0))
    source = Kafka(bootstrap="b:1", topics=("t",))
    opened = OpenedKafka(source, admin, places, context(), None, NOTHING, 100, is_partitioned=True)
    end = json.dumps({"t": {"0": 100, "1": 250}})
    found = [json.loads(part or "{}")["t"] for part in parts_of(opened, 0, end, 1.0)]
    assert found[0] == {"0": 0, "1": 50}
    assert found[1] == {"0": 34, "1": 117}
    assert [sum(part.values()) for part in found] == sorted(sum(part.values()) for part in found)
    assert json.loads(str(opened.history_start(0, '{"t": {"0": 9, "1": 9}}')))["t"] == {"0": 0, "1": 9}


def test_entries_of_a_store_are_never_divided_and_keep_its_clock(tmp_path: Path) -> None:
    store = ChannelStore(str(tmp_path), fragment="ingest")
    for number in range(5):
        store.append(number, [Segment(f"s{number}", 1, 10, 0, number, number)], number * 100)
    ingest: Any = SimpleNamespace(raise_error=lambda: None)
    source = StoredSource(NOTHING, cast(Any, SimpleNamespace(bounded=True)), ingest, store, None, 40)
    end = json.dumps({"entry": 5, "clock": 400, "life": 2})
    found = [json.loads(part or "{}") for part in parts_of(source, 0, end, 0.5)]
    assert [(part["entry"], part["clock"]) for part in found[1:]] == [(2, 100), (4, 300), (5, 400)]


def test_a_source_that_cannot_be_read_twice_says_so() -> None:
    class Once(OpenedSource):
        def position(self, offset: str | None) -> Any:
            raise NotImplementedError

    with pytest.raises(UserError, match="cannot be read again"):
        Once().history_start(0, "{}")


def begun_with_former(directory: Path, former: int) -> None:
    """The channel of a new fragment that also gets former messages, as a change puts it in its place."""
    store = ChannelStore(str(directory), fragment=former_producer("made"))
    for number in range(former):
        store.append(number, [Segment(f"s{number}", 1_000, 10, 0, 0, 0)], number)
    ChannelBeginning(str(directory)).begin_with_former(3, former, 5)
    ChannelStore(str(directory), fragment="made").append(3, [], former)


def test_a_producer_does_not_wait_for_a_new_fragment_until_that_has_caught_up(tmp_path: Path) -> None:
    begun_with_former(tmp_path, 3)
    world = World(tmp_path, channel__window_messages="100", channel__window_batches="2")
    assert world.book.full([CHANNEL]) is None, "it waits for a fragment that reads what was before"
    world.append(60)
    world.append(60)
    assert world.book.full([CHANNEL]) is None
    again = World(tmp_path, channel__window_messages="100", channel__window_batches="2")
    again.reader.record_position(cast(Any, "read"), 5)
    again.begin()
    assert again.book.full([CHANNEL]) is None, "it has caught up, and the window has room"
    again.append(60)
    assert again.book.full([CHANNEL]) == "read", "from then on it waits, as always"


def test_lost_entries_before_the_beginning_are_of_no_batch_of_the_producer(tmp_path: Path) -> None:
    begun_with_former(tmp_path, 3)
    store = ChannelStore(str(tmp_path), fragment="made")
    made = rebuilt_up_to_the_beginning(store, [2, 3, 4])
    assert {number: (entry.batch_id, entry.clock_ms, entry.segments) for number, entry in made.items()} == {
        2: (-1, 1, ()),
        3: (3, 1, ()),
    }
    assert store.last_batch() == 3
    assert not rebuilt_up_to_the_beginning(ChannelStore(str(tmp_path / "other")), [0, 1])


def test_a_channel_with_former_messages_has_begun_and_does_not_begin_again(tmp_path: Path) -> None:
    begun_with_former(tmp_path, 3)
    beginning = ChannelBeginning(str(tmp_path))
    beginning.begin(ChannelStore(str(tmp_path), fragment="made"), 9, 50, 60)
    begins = beginning.read()
    assert begins is not None
    assert (begins.after, begins.newest_ms, begins.former) == (3, 5, 3)
    assert ChannelStore(str(tmp_path)).length() == 4
