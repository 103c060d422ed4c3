"""Source-end ingestion: every row once, in order, through restarts; and never too much unread."""

from __future__ import annotations

import itertools
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import InputError, UnavailableError
from drivetrain.runtime.channel.columns import BAD
from drivetrain.runtime.channel.segments import read_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel import feeds
from drivetrain.spark.channel.feeds import IterableFeed, SocketFeed
from drivetrain.spark.channel.ingest import Ingest, IngestLimits
from drivetrain.spark.channel.ingest_threads import IngestThreads
from drivetrain.spark.channel.row_batches import SHOWN_CHARACTERS

SCHEMA = pa.schema([("n", pa.int64())])
TEXT = pa.schema([("value", pa.string())])
SMALL = IngestLimits(rows=10, wait_ms=20)


def stored(uri: str) -> list[tuple[Any, ...]]:
    store = ChannelStore(uri)
    return [
        tuple(row.values())
        for entry in store.entries(store.start())
        for segment in entry.segments
        for batch in read_segment(store.files, segment)
        for row in batch.to_pylist()
    ]


def values(uri: str) -> list[Any]:
    return [row[0] for row in stored(uri)]


def with_bad_rows(schema: pa.Schema) -> pa.Schema:
    """The schema of a store in which bad rows are set aside."""
    fields = {"raw": pa.string(), "file": pa.string(), "line": pa.int64(), "error": pa.string()}
    return schema.append(pa.field(BAD, pa.struct(list(fields.items()))))


def eventually(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "still not true"
        time.sleep(0.005)


def ingest(path: Path, rows: Any, **options: Any) -> IngestThreads:
    options = {"schema": SCHEMA, "limits": SMALL, "event_time_ms": lambda row: row * 10} | options
    feed = rows if isinstance(rows, SocketFeed) else IterableFeed(rows)
    store = ChannelStore(str(path), fragment="source")
    return IngestThreads(Ingest(store, options.pop("schema"), **options), feed)


def run_to_end(path: Path, rows: Any, **options: Any) -> IngestThreads:
    running = ingest(path, rows, **options)
    running.start()
    assert running.wait_finished(20)
    running.stop()
    return running


def test_a_bounded_iterable_is_stored_in_order_and_ends_with_the_final_clock(tmp_path: Path) -> None:
    running = run_to_end(tmp_path, range(95), disorder_ms=30)
    assert values(str(tmp_path)) == list(range(95))
    assert running.stored == 95
    clocks = [entry.clock_ms for entry in ChannelStore(str(tmp_path)).entries(0)]
    assert clocks[-2:] == [94 * 10 - 30, FINAL_CLOCK_MS]
    assert clocks == sorted(clocks)


def test_disordered_rows_do_not_move_the_clock_back(tmp_path: Path) -> None:
    run_to_end(tmp_path, [50, 60, 10, 20, 70], limits=IngestLimits(rows=1), disorder_ms=0)
    assert [e.clock_ms for e in ChannelStore(str(tmp_path)).entries(0)] == [
        500,
        600,
        600,
        600,
        700,
        FINAL_CLOCK_MS,
    ]


def test_a_restart_continues_behind_the_stored_rows_even_if_they_were_trimmed(tmp_path: Path) -> None:
    def halting() -> Iterator[int]:
        yield from range(40)
        waiting.set()
        released.wait(20)

    waiting, released = threading.Event(), threading.Event()
    running = ingest(tmp_path, halting())
    running.start()
    assert waiting.wait(20)
    eventually(lambda: running.stored == 40)
    running.stop()
    released.set()
    assert not running.finished
    store = ChannelStore(str(tmp_path), fragment="source")
    store.trim({"reader": 99})  # type: ignore[dict-item] # a plain name
    left = values(str(tmp_path))
    assert 0 < len(left) < 40
    assert run_to_end(tmp_path, range(60)).stored == 60
    assert values(str(tmp_path)) == left + list(range(40, 60))


def test_a_finished_stream_stays_finished(tmp_path: Path) -> None:
    run_to_end(tmp_path, range(5))
    length = ChannelStore(str(tmp_path)).length()
    again = run_to_end(tmp_path, range(100))
    assert (again.stored, ChannelStore(str(tmp_path)).length()) == (5, length)


def test_an_empty_iterable_ends_at_once(tmp_path: Path) -> None:
    run_to_end(tmp_path, [])
    assert [(e.rows, e.clock_ms) for e in ChannelStore(str(tmp_path)).entries(0)] == [(0, FINAL_CLOCK_MS)]


def test_a_trickle_is_stored_soon_and_not_only_when_an_entry_is_full(tmp_path: Path) -> None:
    go_on = threading.Event()

    def trickle() -> Iterator[int]:
        yield 1
        go_on.wait(20)
        yield 2

    running = ingest(tmp_path, trickle(), limits=IngestLimits(rows=1_000_000, wait_ms=20))
    running.start()
    eventually(lambda: values(str(tmp_path)) == [1])
    go_on.set()
    assert running.wait_finished(20)


def test_a_slow_reader_blocks_the_source_until_it_has_read(tmp_path: Path) -> None:
    pulled = itertools.count()
    reached = 0

    def watched() -> Iterator[int]:
        nonlocal reached
        while True:
            reached = next(pulled)
            yield reached

    position = 0
    limits = IngestLimits(rows=10, wait_ms=5, unread_bytes=3_000)
    running = ingest(tmp_path, watched(), limits=limits, position=lambda: position)
    running.start()
    store = ChannelStore(str(tmp_path))

    def unread() -> int:
        return sum(entry.bytes for entry in store.entries(position))

    eventually(lambda: unread() >= 3_000)
    full = store.length()
    eventually(lambda: reached >= full * 10 + 9)  # what is pulled beyond it is one entry's worth
    assert store.length() == full
    assert unread() < 3_000 + store.entry(0).bytes
    assert reached < full * 10 + 30
    position = full
    eventually(lambda: store.length() > full)
    running.stop()
    found = values(str(tmp_path))
    assert found == list(range(len(found)))


def test_the_recorded_positions_of_the_subscribers_release_the_source(tmp_path: Path) -> None:
    limits = IngestLimits(rows=10, wait_ms=5, unread_bytes=1)
    running = ingest(tmp_path, range(50), limits=limits)
    running.start()
    store = ChannelStore(str(tmp_path))
    for position in range(1, 5):
        eventually(lambda position=position: store.length() == position)
        store.record_position("reader", position)
    eventually(lambda: store.length() == 6)  # the last rows, and the final clock, which nobody need wait for
    assert running.wait_finished(20)
    assert values(str(tmp_path)) == list(range(50))


def test_an_error_of_the_source_is_raised_behind_the_rows_before_it(tmp_path: Path) -> None:
    def failing() -> Iterator[int]:
        yield from range(25)
        raise ConnectionResetError("the well has run dry")

    running = ingest(tmp_path, failing())
    running.start()
    with pytest.raises(ConnectionResetError, match="run dry"):
        running.wait_finished(20)
    running.stop()
    assert values(str(tmp_path)) == list(range(25))
    assert run_to_end(tmp_path, range(30)).stored == 30


@pytest.mark.parametrize(
    ("bad", "says"),
    [("seven", "invalid literal|convert"), (None, "unsupported operand"), ((1, 2), "expected 1 values|int")],
)
def test_a_bad_row_is_named_and_the_rows_before_it_are_kept(tmp_path: Path, bad: Any, says: str) -> None:
    def event_time_ms(row: Any) -> int:
        return int(row + 0) if not isinstance(row, str) else int(row)

    running = ingest(tmp_path, [*range(13), bad, 99], event_time_ms=event_time_ms)
    running.start()
    with pytest.raises(InputError, match="row 14") as caught:
        running.wait_finished(20)
    running.stop()
    assert caught.value.__cause__ is not None
    assert pytest.importorskip("re").search(says, str(caught.value))
    assert values(str(tmp_path)) == list(range(13))


@pytest.mark.parametrize(
    "rows",
    [[(1, "a"), (2, None)], [{"n": 1, "s": "a"}, {"n": 2}], [[1, "a"], (2, None)]],
)
def test_rows_may_be_tuples_lists_or_mappings(tmp_path: Path, rows: list[Any]) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    run_to_end(tmp_path, rows, schema=schema, event_time_ms=None)
    assert [row[:2] for row in stored(str(tmp_path))] == [(1, "a"), (2, None)]


def test_arrival_time_moves_the_clock_while_the_source_is_silent(tmp_path: Path) -> None:
    now_ms = 1_000
    done = threading.Event()

    def silent() -> Iterator[int]:
        yield 1
        done.wait(20)

    limits = IngestLimits(rows=10, wait_ms=5, idle_ms=50)
    running = ingest(
        tmp_path, silent(), event_time_ms=None, limits=limits, now_ms=lambda: now_ms, disorder_ms=7
    )
    running.start()
    store = ChannelStore(str(tmp_path))
    eventually(lambda: store.length() == 1)
    now_ms = 5_000
    eventually(lambda: store.length() == 2)
    assert [(e.rows, e.clock_ms) for e in store.entries(0)] == [(1, 993), (0, 4_993)]
    done.set()
    running.stop()


class Server:
    """A TCP server that sends what it is told to one client at a time."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def accept(self) -> socket.socket:
        self.listener.settimeout(20)
        return self.listener.accept()[0]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.listener.close()


def lines_from(path: Path, server: Server) -> IngestThreads:
    running = ingest(path, SocketFeed("127.0.0.1", server.port), schema=TEXT, event_time_ms=None)
    running.start()
    return running


def test_lines_of_a_socket_are_stored_until_the_server_closes(tmp_path: Path, server: Server) -> None:
    running = lines_from(tmp_path, server)
    with server.accept() as connection:
        connection.sendall(b"one\ntwo\r\n\nth")
        eventually(lambda: values(str(tmp_path)) == ["one", "two", ""])
        connection.sendall("rée\nlast, without an end".encode())
    assert running.wait_finished(20)
    assert values(str(tmp_path)) == ["one", "two", "", "thrée", "last, without an end"]


def test_a_socket_continues_after_a_stop_without_half_a_line(tmp_path: Path, server: Server) -> None:
    running = lines_from(tmp_path, server)
    with server.accept() as connection:
        connection.sendall(b"one\ntwo\nhal")
        eventually(lambda: values(str(tmp_path)) == ["one", "two"])
        running.stop()
    assert not running.finished
    running = lines_from(tmp_path, server)
    with server.accept() as connection:
        connection.sendall(b"three\n")
    assert running.wait_finished(20)
    assert values(str(tmp_path)) == ["one", "two", "three"]
    assert running.stored == 3


def test_stopping_stores_every_line_that_was_received(tmp_path: Path, server: Server) -> None:
    running = lines_from(tmp_path, server)
    with server.accept() as connection:
        connection.sendall(b"".join(b"%d\n" % n for n in range(200)))
        eventually(lambda: running.stored > 0)
        running.stop()
    found = values(str(tmp_path))
    assert found == [str(n) for n in range(len(found))]
    assert len(found) == 200


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path, server: Server) -> None:
    running = lines_from(tmp_path, server)
    with server.accept() as connection:
        connection.sendall(b"good\n\xff\xfe\n")
        with pytest.raises(InputError, match="line 2 is not UTF-8"):
            running.wait_finished(20)
    running.stop()
    assert values(str(tmp_path)) == ["good"]


def test_a_line_that_does_not_end_is_not_held_in_memory(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "LONGEST_LINE_BYTES", 1 << 20)
    running = lines_from(tmp_path, server)
    with server.accept() as connection:
        connection.sendall(b"good\n" + b"x" * (3 << 20))
        with pytest.raises(InputError, match="line 2 is longer than 1 MiB"):
            running.wait_finished(20)
    running.stop()
    assert values(str(tmp_path)) == ["good"]


def test_lines_that_cannot_be_read_are_set_aside(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "LONGEST_LINE_BYTES", 1 << 20)
    feed = SocketFeed("127.0.0.1", server.port, sets_aside=True)
    running = ingest(tmp_path, feed, schema=with_bad_rows(TEXT), event_time_ms=None)
    running.start()
    with server.accept() as connection:
        connection.sendall(b"one\n\xff\xfe!\n" + b"x" * (3 << 20) + b"\ntwo\r\n")
    assert running.wait_finished(20)
    assert values(str(tmp_path)) == ["one", None, None, "two"]
    first, second = (row[1] for row in stored(str(tmp_path)) if row[1] is not None)
    assert first["raw"] == "\\xff\\xfe!"
    assert (first["line"], first["error"]) == (2, "line 2 is not UTF-8")
    assert second["raw"] == "x" * SHOWN_CHARACTERS
    assert second["error"] == "line 3 is longer than 1 MiB"


def test_rows_that_do_not_fit_are_set_aside_and_the_others_are_stored(tmp_path: Path) -> None:
    rows = [1, 2, "three", 4, None, (5, 6), 7]
    running = ingest(tmp_path, rows, schema=with_bad_rows(SCHEMA), event_time_ms=None)
    running.start()
    assert running.wait_finished(20)
    assert values(str(tmp_path)) == [1, 2, None, 4, None, None, 7]
    bad = {row[1]["line"]: row[1] for row in stored(str(tmp_path)) if row[1] is not None}
    assert [bad[3]["raw"], bad[6]["raw"]] == ["'three'", "(5, 6)"]
    assert set(bad) == {3, 6}
    assert "three" in bad[3]["error"]


def test_large_rows_are_not_collected_after_a_restart_while_nobody_reads(tmp_path: Path) -> None:
    random = Random(1)
    limits = IngestLimits(rows=1_000, bytes=1_000_000, wait_ms=20, unread_bytes=100_000)
    made = Ingest(ChannelStore(str(tmp_path), fragment="source"), TEXT, limits=limits)
    made.resume()
    for _ in range(5):
        made.take(random.randbytes(50_000).hex())
    made.end()
    made.step(0.0)

    again = Ingest(ChannelStore(str(tmp_path), fragment="source"), TEXT, limits=limits)
    again.resume()
    taken = 0
    while not again.is_full:
        again.take(random.randbytes(50_000).hex())
        taken += 1
    assert taken <= 20
    assert again.step(0.0) is not None, "it waits for readers"
    assert len(values(str(tmp_path))) == 5


def test_a_server_that_is_not_there_is_waited_for_and_then_reported(tmp_path: Path, server: Server) -> None:
    server.listener.close()
    feed = SocketFeed("127.0.0.1", server.port, connect_timeout_ms=300)
    running = ingest(tmp_path, feed, schema=TEXT, event_time_ms=None)
    running.start()
    with pytest.raises(UnavailableError, match=f"127.0.0.1:{server.port}"):
        running.wait_finished(20)
    running.stop()


def test_a_stop_while_the_socket_source_connects_is_quick(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    connects, may_connect = threading.Event(), threading.Event()
    create = socket.create_connection

    def slowly(*args: Any, **options: Any) -> socket.socket:
        connects.set()
        may_connect.wait(20)
        return create(*args, **options)

    monkeypatch.setattr(socket, "create_connection", slowly)
    running = lines_from(tmp_path, server)
    assert connects.wait(20)
    threading.Timer(0.2, may_connect.set).start()
    running.stop(timeout_s=5)  # raises if its threads do not end
    assert not running.finished


class UnwillingFeed(IterableFeed):
    """Its broker takes no acknowledgements."""

    ends_on_close = True
    is_released = False

    def acknowledge(self, stored: int) -> None:
        raise UnavailableError("the broker is away")

    def release(self) -> None:
        self.is_released = True


def test_a_source_that_exits_ends_the_run_after_its_rows_are_stored(tmp_path: Path) -> None:
    def rows() -> Iterator[int]:
        yield from range(3)
        sys.exit("the device is gone")

    running = ingest(tmp_path, rows())
    running.start()
    with pytest.raises(InputError, match="the device is gone"):
        running.wait_finished(20)
    assert values(str(tmp_path)) == [0, 1, 2]
    running.stop()


def test_a_feed_that_cannot_acknowledge_is_released_and_its_error_reported(tmp_path: Path) -> None:
    feed = UnwillingFeed(range(3))
    store = ChannelStore(str(tmp_path), fragment="source")
    running = IngestThreads(Ingest(store, SCHEMA, limits=SMALL, event_time_ms=lambda row: row), feed)
    running.start()
    with pytest.raises(UnavailableError, match="the broker is away"):
        running.wait_finished(20)
    running.stop()
    assert feed.is_released
