"""The log of a channel against a naive model, and each of its refusals."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from drivetrain.core.channel.channel_log import (
    NO_BATCH,
    ChannelLog,
    ClockMovedBackError,
    Entry,
    FragmentId,
    Segment,
    StaleIncarnationError,
    SubscriberId,
)
from drivetrain.core.checkpoint.transaction import Action, Command
from drivetrain.errors import InternalError
from nightly_run import examples

A = FragmentId("a")


def prepare(round: int) -> Command:
    """The barrier of a try."""
    return Command(Action.PREPARE, round, round, 1)


def segment(low: int = 0, high: int = 0, rows: int = 1) -> Segment:
    return Segment(path=f"s-{low}-{high}", rows=rows, bytes=10, crc32=7, min_ts_ms=low, max_ts_ms=high)


def append(log: ChannelLog, **changes: Any) -> Entry | None:
    arguments: dict[str, Any] = {
        "fragment": A,
        "incarnation": 0,
        "batch_id": 0,
        "segments": (segment(),),
        "clock_ms": 0,
    }
    entry = log.next_entry(**(arguments | changes))
    if entry is not None:
        log.add(entry)
    log.check()
    return entry


def test_a_replayed_batch_adds_nothing() -> None:
    log = ChannelLog()
    assert append(log, batch_id=3, clock_ms=5) is not None
    assert append(log, batch_id=3, clock_ms=9) is None
    assert append(log, batch_id=2, clock_ms=9) is None
    assert log.end == 1


def test_batch_ids_are_counted_per_fragment() -> None:
    log = ChannelLog()
    append(log, fragment="a", batch_id=7)
    assert append(log, fragment="b", batch_id=0) is not None
    assert (log.last_batch(A), log.last_batch(FragmentId("b")), log.last_batch(FragmentId("c"))) == (
        7,
        0,
        NO_BATCH,
    )


def test_a_clock_entry_carries_the_last_batch_id_so_that_the_last_entry_tells_it() -> None:
    log = ChannelLog()
    append(log, batch_id=4, clock_ms=1)
    last = append(log, batch_id=None, segments=(), clock_ms=2)
    assert last is not None
    assert ChannelLog([last]).last_batch(A) == 4
    assert append(ChannelLog([last]), batch_id=4, clock_ms=3) is None


def test_a_clock_that_did_not_move_adds_nothing_unless_it_carries_a_new_barrier() -> None:
    log = ChannelLog()
    append(log, clock_ms=5)
    assert append(log, batch_id=None, segments=(), clock_ms=5) is None
    assert append(log, batch_id=None, segments=(), clock_ms=5, barrier=prepare(1)) is not None
    assert append(log, batch_id=None, segments=(), clock_ms=5, barrier=prepare(1)) is None
    with pytest.raises(InternalError, match="with something else"):
        append(log, batch_id=7, clock_ms=5, barrier=prepare(2))
    with pytest.raises(InternalError, match="with something else"):
        append(log, batch_id=None, segments=(), clock_ms=6, barrier=prepare(2))


def test_a_clock_below_the_last_one_is_refused_and_changes_nothing() -> None:
    log = ChannelLog()
    append(log, batch_id=0, clock_ms=5)
    with pytest.raises(ClockMovedBackError, match="5 ms or later"):
        append(log, batch_id=1, clock_ms=4)
    assert log.end == 1
    assert append(log, batch_id=1, clock_ms=5) is not None


def test_an_older_incarnation_is_refused_even_for_a_replay() -> None:
    log = ChannelLog()
    append(log, incarnation=2, batch_id=0)
    for batch_id in (0, 1, None):
        with pytest.raises(StaleIncarnationError, match="incarnation 2 or later"):
            append(log, incarnation=1, batch_id=batch_id, segments=())
    assert append(log, incarnation=3, batch_id=1) is not None


def test_segments_without_a_batch_are_refused() -> None:
    with pytest.raises(InternalError, match="without a batch"):
        append(ChannelLog(), batch_id=None)


@pytest.mark.parametrize(
    "second",
    [
        {"number": 2},
        {"number": 0},
        {"batch_id": 0},
        {"incarnation": -1},
    ],
)
def test_an_entry_that_cannot_follow_is_refused_and_changes_nothing(second: dict[str, int]) -> None:
    first = Entry(0, "a", 0, 0, (segment(),), 5)
    follower = msgspec.structs.replace(first, **({"number": 1, "batch_id": 1, "incarnation": 0} | second))
    log = ChannelLog([first])
    with pytest.raises(InternalError):
        log.add(follower)
    assert list(log.entries) == [first]
    log.check()


def test_check_finds_a_log_that_was_changed_behind_its_back() -> None:
    log = ChannelLog([Entry(0, "a", 0, 0, (segment(),), 5), Entry(1, "a", 0, 1, (segment(),), 6)])
    log._entries[1] = msgspec.structs.replace(log._entries[1], clock_ms=4)
    with pytest.raises(InternalError, match="clock never decreases"):
        log.check()


def test_nothing_is_trimmable_without_subscribers_and_the_last_entry_never() -> None:
    log = ChannelLog([Entry(n, "a", 0, n, (segment(),), 0) for n in range(3)])
    assert log.trimmable({}) == []
    assert [e.number for e in log.trimmable({SubscriberId("s"): 3})] == [0, 1]


@given(
    length=st.integers(1, 8),
    begin=st.integers(0, 3),
    positions=st.dictionaries(st.sampled_from("xyz"), st.integers(0, 12), min_size=1),
    checkpoint=st.none() | st.integers(0, 12),
)
def test_trimming_takes_exactly_what_all_have_passed(
    length: int, begin: int, positions: dict[str, int], checkpoint: int | None
) -> None:
    log = ChannelLog([Entry(begin + n, "a", 0, n, (segment(),), 0) for n in range(length)])
    before = list(log.entries)
    gone = log.trimmable({SubscriberId(k): v for k, v in positions.items()}, checkpoint)
    needed = [*positions.values(), *([] if checkpoint is None else [checkpoint])]
    assert gone == [e for e in before[:-1] if all(e.number < position for position in needed)]
    log.drop(gone)
    log.check()
    assert [*gone, *log.entries] == before


@given(
    spans=st.lists(st.lists(st.tuples(st.integers(-9, 30), st.integers(0, 9)), max_size=3), max_size=12),
    ts_ms=st.integers(-12, 42),
    dropped=st.integers(0, 11),
)
def test_a_timestamp_search_finds_what_a_full_scan_finds(
    spans: list[list[tuple[int, int]]], ts_ms: int, dropped: int
) -> None:
    log = ChannelLog(
        Entry(n, "a", 0, n, tuple(segment(low, low + width) for low, width in span), 0)
        for n, span in enumerate(spans)
    )
    if dropped < len(spans):
        log.drop(list(log.entries)[:dropped])
    expected = [e for e in log.entries if any(s.max_ts_ms >= ts_ms for s in e.segments)]
    assert log.since(ts_ms) == expected


@given(st.integers(), st.integers(0, 2**32 - 1), st.none() | st.integers(0, 9))
def test_entries_survive_encoding(ts_ms: int, crc32: int, barrier: int | None) -> None:
    ts_ms %= 2**62
    command = None if barrier is None else prepare(barrier)
    entry = Entry(1, "ä/b", 2, 3, (Segment("p", 1, 2, crc32, -ts_ms, ts_ms),), ts_ms, command)
    assert msgspec.json.decode(msgspec.json.encode(entry), type=Entry) == entry
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=Entry) == entry


class LogAgainstModel(RuleBasedStateMachine):
    """Random appends, replays, stale producers and trims; the model is a plain list and a set."""

    def __init__(self) -> None:
        super().__init__()
        self.log = ChannelLog()
        self.everything: list[tuple[str, int | None, int]] = []
        self.batches: dict[str, int] = {}
        self.incarnation = 0
        self.clock_ms = -100
        self.trimmed = 0

    @rule(
        fragment=st.sampled_from("ab"),
        batch_id=st.integers(0, 12),
        clock_ms=st.integers(-100, 100),
        incarnation=st.integers(0, 3),
    )
    def append_batch(self, fragment: str, batch_id: int, clock_ms: int, incarnation: int) -> None:
        def act() -> Entry | None:
            return append(
                self.log, fragment=fragment, batch_id=batch_id, clock_ms=clock_ms, incarnation=incarnation
            )

        if incarnation < self.incarnation:
            with pytest.raises(StaleIncarnationError):
                act()
        elif batch_id <= self.batches.get(fragment, -1):
            assert act() is None
        elif clock_ms < self.clock_ms:
            with pytest.raises(ClockMovedBackError):
                act()
        else:
            assert act() is not None
            self.everything.append((fragment, batch_id, clock_ms))
            self.batches[fragment] = batch_id
            self.incarnation, self.clock_ms = incarnation, clock_ms

    @rule(ahead=st.integers(0, 5))
    def append_clock(self, ahead: int) -> None:
        added = append(
            self.log,
            batch_id=None,
            segments=(),
            clock_ms=self.clock_ms + ahead,
            incarnation=self.incarnation,
        )
        assert (added is None) == (ahead == 0 and bool(self.everything))
        if added is not None:
            self.clock_ms += ahead
            self.everything.append(("a", None, self.clock_ms))

    @rule(position=st.integers(0, 30))
    def trim(self, position: int) -> None:
        gone = self.log.trimmable({SubscriberId("s"): position})
        self.log.drop(gone)
        self.trimmed += len(gone)

    @rule()
    def restart(self) -> None:
        self.log = ChannelLog(self.log.entries)
        self.batches = {}  # what only trimmed entries told is forgotten, as after a real restart
        for entry in self.log.entries:
            if entry.batch_id != NO_BATCH:
                self.batches[entry.fragment] = entry.batch_id

    @invariant()
    def agrees(self) -> None:
        self.log.check()
        seen = [(e.fragment, e.batch_id if e.segments else None, e.clock_ms) for e in self.log.entries]
        assert seen == self.everything[self.trimmed :]
        assert self.log.end == len(self.everything)


TestLogAgainstModel = LogAgainstModel.TestCase
TestLogAgainstModel.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
