"""Both ends of a channel in one process, on real stores: waiting for room, acknowledging, finding losses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from drivetrain.config import Config
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.flow.flow import FlowMessage
from drivetrain.core.plan.plan import PlannedChannel
from drivetrain.runtime.channel.segments import write_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.flow.flow_book import ChannelFullError, FlowBook

SCHEMA = pa.schema([("v", pa.int64()), ("__ts", pa.timestamp("us", tz="UTC"))])
CHANNEL = "made--read"


class World:
    """One channel, whose producer and subscriber share a book; `say` is what its actor would do."""

    def __init__(self, directory: Path, **keys: str) -> None:
        given = {key.replace("__", ".").replace("_", "-"): value for key, value in keys.items()}
        self.config = Config.load(None, {}, given)
        self.directory = directory
        self.channel = PlannedChannel(CHANNEL, "made", "made", "read", "asked")
        self.blocked: list[str | None] = []
        self.begin()

    def begin(self) -> None:
        """Both sides start (again)."""
        self.book = FlowBook(self.config)
        self.messages: list[FlowMessage] = []
        self.book.send = self.messages.append
        self.store = ChannelStore(str(self.directory), fragment="made")
        self.reader = ChannelStore(str(self.directory))
        self.book.produces(self.channel, self.store)
        self.book.subscribes(self.channel, self.reader, self.reader.position_of("read"), trusts=False)

    def append(self, count: int) -> None:
        """One batch of so many messages."""
        number = self.store.length()
        stamps = pa.array([0] * count, SCHEMA.field(1).type)
        batch = pa.record_batch([pa.array(range(count)), stamps], schema=SCHEMA)
        self.store.append(number, [write_segment(self.store.files, "s", [batch])], number)
        self.book.appended(CHANNEL)

    def take(self, start: int, end: int, messages: int | None = None) -> None:
        """A committed batch of the subscriber."""
        self.book.taken(CHANNEL, start, end, messages)

    def say(self) -> None:
        """Deliver what was said until nobody says more."""
        while self.messages:
            message = self.messages.pop(0)
            if self.book.is_local(message):
                self.book.receive(message)

    def wait(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """What a batch does before it begins."""
        self.book.wait_room([CHANNEL], given_up, self.blocked.append)

    def unacknowledged(self) -> int:
        told = self.book.unacknowledged(CHANNEL)
        assert told is not None
        return told.messages


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_committed_is_acknowledged_and_makes_room_for_who_waits(tmp_path: Path) -> None:
    world = World(tmp_path, channel__window_messages="20")
    world.append(10)
    world.append(15)
    world.say()
    waiting = threading.Thread(target=world.wait, daemon=True)
    waiting.start()
    eventually(lambda: "read" in world.blocked)
    told = world.book.unacknowledged(CHANNEL)
    assert told is not None
    assert (told.messages, told.window_messages) == (25, 20)
    assert told.blocked_ms > 0
    world.take(0, 1, 10)
    world.say()
    waiting.join(20)
    assert not waiting.is_alive()
    assert world.blocked[-1] is None
    total_ms, now_ms = world.book.blocked_ms(CHANNEL)
    assert total_ms >= told.blocked_ms - 1
    assert now_ms == 0
    assert world.book.blocked_ms(CHANNEL) == (total_ms, 0), "it grows only while a batch waits"
    assert world.book.blocked_ms("another") == (0, 0)
    assert world.unacknowledged() == 15


def test_nobody_waits_for_room_behind_the_end_of_a_channel(tmp_path: Path) -> None:
    world = World(tmp_path, channel__window_batches="1")
    world.append(1)
    assert world.book.full([CHANNEL]) == "read"
    world.store.append_clock(FINAL_CLOCK_MS)
    world.book.appended(CHANNEL, last=True)
    assert world.book.full([CHANNEL]) is None, "its subscriber may have ended, and reads no more"
    world.begin()
    assert world.book.full([CHANNEL]) is None


def test_who_waits_gives_up_when_it_is_told_to(tmp_path: Path) -> None:
    world = World(tmp_path, channel__window_batches="1")
    world.append(1)
    stop = threading.Event()
    waiting = threading.Thread(target=world.wait, args=(stop.is_set,), daemon=True)
    waiting.start()
    eventually(lambda: "read" in world.blocked)
    stop.set()
    waiting.join(20)
    assert not waiting.is_alive()


def test_after_a_restart_the_window_holds_what_the_subscriber_has_not_recorded(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(4):
        world.append(10)
    world.reader.record_position("read", 1)
    world.begin()
    assert world.unacknowledged() == 30
    world.take(1, 4, 30)
    world.book.tick()
    world.say()
    eventually(lambda: (world.book.tick(), world.say(), world.unacknowledged() == 0)[-1])


def test_a_batch_that_took_too_few_messages_is_found_and_one_that_took_them_twice_is_not(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.append(10)
    world.append(10)
    world.append(10)
    world.take(0, 1, 20)
    world.take(1, 2, None)
    assert world.book.loss(CHANNEL) is None
    world.take(2, 3, 9)
    loss = world.book.loss(CHANNEL)
    assert loss is not None
    assert (loss.start, loss.expected, loss.got) == (2, "10 messages", "9 messages")


def test_an_entry_that_disappears_from_the_end_of_the_log_is_missed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(10)
    world.append(10)
    (tmp_path / "log" / f"{1:020d}.json").unlink()
    eventually(lambda: (world.book.tick(), world.say(), world.book.loss(CHANNEL) is not None)[-1])
    loss = world.book.loss(CHANNEL)
    assert loss is not None
    assert (loss.start, loss.got) == (1, "the entry is missing")


def test_a_channel_keeps_no_more_than_it_may_until_it_is_trimmed(tmp_path: Path) -> None:
    world = World(tmp_path, channel__max_bytes="1 KiB", channel__when_full="fail")
    while world.store.entry(0).bytes * world.store.length() < 1024 if world.store.length() else True:
        world.append(10)
    world.say()
    with pytest.raises(ChannelFullError) as raised:
        world.wait()
    assert "fragment read does not keep up" in str(raised.value)
    world.take(0, world.store.length(), None)
    world.book.tick()
    eventually(lambda: (world.book.tick(), world.say(), world.unacknowledged() == 0)[-1])
    world.wait()  # all is read: nobody could make room by going on
    world.append(10)
    with pytest.raises(ChannelFullError):
        world.wait()
    world.store.trim({"read": world.store.length() - 1})  # type: ignore[dict-item] # a plain name
    world.book.trimmed(CHANNEL)
    world.wait()


class Machine:
    """A machine whose wall clock somebody sets, and that has been up for `up_s`."""

    def __init__(self, wall_s: float, up_s: float) -> None:
        self.wall_s = wall_s
        self.up_s = up_s

    def book(self, config: Config, *, epoch: int = 1) -> FlowBook:
        return FlowBook(config, epoch=epoch, monotonic_s=lambda: self.up_s, wall_s=lambda: self.wall_s)

    def passes(self, seconds: float) -> None:
        self.wall_s += seconds
        self.up_s += seconds


def test_a_subscriber_that_restarts_under_an_earlier_wall_clock_is_believed(tmp_path: Path) -> None:
    """In another process, of a machine that has just been started, whose clock is a year behind."""
    world = World(tmp_path)
    producer, consumer = world.book, Machine(1.8e9, 5e5).book(world.config)

    def say() -> None:
        while world.messages:
            message = world.messages.pop(0)
            (producer if producer.is_local(message) else consumer).receive(message)

    def subscribe(attempt: int) -> None:
        consumer.send = world.messages.append
        consumer.attempted("read", attempt)
        consumer.subscribes(world.channel, world.reader, attempt, trusts=False)

    producer = world.book = FlowBook(world.config)
    producer.send = world.messages.append
    producer.produces(world.channel, world.store)
    subscribe(0)
    world.append(10)
    world.append(10)
    consumer.taken(CHANNEL, 0, 1, 10)
    eventually(lambda: (producer.tick(), say(), world.unacknowledged() == 10)[-1])
    consumer = Machine(1.8e9 - 3e7, 3).book(world.config)
    subscribe(1)
    consumer.taken(CHANNEL, 1, 2, 10)
    eventually(lambda: (producer.tick(), say(), world.unacknowledged() == 0)[-1])


def test_a_producer_asks_again_and_waits_whatever_is_done_to_the_wall_clock(tmp_path: Path) -> None:
    world = World(tmp_path, channel__max_age="1 min", channel__when_full="fail")
    machine = Machine(time.time(), 1_000)

    def begin() -> None:
        world.book = machine.book(world.config)
        world.book.send = world.messages.append
        world.book.produces(world.channel, world.store)

    begin()
    world.append(1)
    world.messages.clear()
    machine.wall_s -= 1e6
    machine.passes(0.3)
    world.book.tick()
    assert len(world.messages) == 1  # after its patience, not after 11 days
    machine.wall_s += 2e6
    world.wait()  # nothing has been unread for a minute
    machine.passes(61)
    with pytest.raises(ChannelFullError):
        world.wait()
    machine.wall_s = time.time() - 1e6
    begin()
    world.wait()  # stored in the future, as the clock says now: it is new
    machine.passes(61)
    with pytest.raises(ChannelFullError):
        world.wait()


def test_a_message_is_for_the_fragment_that_it_names(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(1)
    eventually(lambda: (world.book.tick(), bool(world.messages))[-1])
    request = world.messages[0]
    assert world.book.is_local(request)
    assert not FlowBook(world.config).is_local(request)


def test_a_producer_does_not_wait_for_a_subscriber_that_has_left(tmp_path: Path) -> None:
    world = World(tmp_path, channel__window_messages="5")
    world.append(10)
    waiting = threading.Thread(target=world.wait, daemon=True)
    waiting.start()
    eventually(lambda: "read" in world.blocked)
    world.book.subscriber_left(CHANNEL)
    waiting.join(20)
    assert not waiting.is_alive()
    world.book.drops(CHANNEL)
    world.book.appended(CHANNEL)
    world.book.trimmed(CHANNEL)
    assert world.book.unacknowledged(CHANNEL) is None
