"""The notes of a Kafka source for replays, in a store that fails and outlives its writers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.connectors.kafka.batch_index import RECORDS, KafkaIndex, newest_of
from drivetrain.connectors.kafka.offset_store import Record
from drivetrain.core.replay.offset_index import UNKNOWN_MS
from drivetrain.errors import UnavailableError
from drivetrain.spark.connector.newest import Newest
from drivetrain.spark.prepare.source_clock import newest_of_all

P, Q = ("t", 0), ("t", 1)


class Memory:
    """A store in memory; while `away` it cannot be written."""

    def __init__(self) -> None:
        self.records: list[str] = []
        self.away = False

    def load(self) -> list[Record]:
        return [json.loads(record) for record in self.records]

    def append(self, record: Record) -> None:
        self._reach()
        self.records.append(json.dumps(record))

    def replace(self, picture: Record) -> None:
        self._reach()
        self.records = [json.dumps(picture)]

    def close(self) -> None:
        """Nothing is held open."""

    def _reach(self) -> None:
        if self.away:
            raise UnavailableError("no answer")


def opened(store: Memory, column: str = "at", id: str = "1") -> KafkaIndex:
    return KafkaIndex(store, column, {"t": id}, 2)


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=40),
    st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from(["", "", "", "away", "back", "dies"])), max_size=30
    ),
    st.integers(0, 31),
)
def test_whoever_dies_and_whatever_cannot_be_written_no_message_is_missed(
    times: list[int], batches: list[tuple[int, str]], from_ms: int
) -> None:
    store = Memory()
    index = opened(store)
    index.renew({P: 0})
    at = 0
    for size, happens in batches:
        end = min(len(times), at + size)
        store.away = happens == "away" or (store.away and happens != "back")
        index.record({P: at}, {P: end}, {P: max(times[at:end], default=None)}, None)
        at = end
        if happens == "dies":
            index = opened(store)
    for told in (index, opened(store)):
        start = told.start(P, from_ms)
        assert start is not None
        assert all(ms < from_ms for ms in times[:start])


def test_a_store_grows_by_a_record_for_each_batch_and_shrinks_to_a_picture() -> None:
    store = Memory()
    index = opened(store)
    index.renew({P: 5})
    for n in range(5, 5 + 2 * RECORDS):
        index.record({P: n}, {P: n + 1}, {P: n}, None)
        assert len(store.records) <= RECORDS + 1
    index.record({P: 7}, {P: 8}, {P: 7}, None)
    assert opened(store).start(P, 5 + 2 * RECORDS - 1) == 5 + 2 * RECORDS - 1
    assert opened(store).start(P, 0) == 5


def test_what_is_known_of_another_event_time_or_topic_counts_for_nothing() -> None:
    store = Memory()
    index = opened(store)
    index.renew({P: 0})
    index.record({P: 0}, {P: 9}, {P: 1}, None)
    assert opened(store).start(P, 2) == 9
    assert opened(store, column="other").start(P, 2) is None
    assert opened(store, id="2").start(P, 2) is None
    index.replaced("t", "2")
    assert index.start(P, 2) is None


def test_a_life_that_drops_what_is_older_than_its_replay_does_not_take_it_for_older_than_that() -> None:
    index = opened(Memory())
    index.renew({P: 0})
    index.record({P: 0}, {P: 9}, {P: None}, floor_ms=99)
    assert index.start(P, 99) == 0
    assert index.start(P, 100) == 9


NUMBERS = {P: 0, Q: 1}


@pytest.mark.parametrize(
    ("newest", "told"),
    [
        (None, {P: UNKNOWN_MS, Q: UNKNOWN_MS}),
        (Newest(None), {P: UNKNOWN_MS, Q: UNKNOWN_MS}),
        (Newest(7), {P: 7, Q: 7}),
        (Newest(7, {0: 7}, 0, True), {P: 7, Q: None}),
        (Newest(7, {0: 3}, 1, True), {P: 3, Q: 7}),
        (newest_of_all([Newest(7, {0: 7}, 0, True), Newest(9, {1: 9}, 0, True)]), {P: 7, Q: 9}),
        (newest_of_all([Newest(7, {0: 7}, 0, True), Newest(5)]), {P: 7, Q: 7}),
        (newest_of_all([Newest(7, {0: 7}, 0, True), Newest(None)]), {P: UNKNOWN_MS, Q: UNKNOWN_MS}),
    ],
)
def test_what_was_not_observed_for_each_partition_is_taken_for_as_new_as_it_may_be(
    newest: Newest | None, told: dict[tuple[str, int], int | None]
) -> None:
    assert newest_of(newest, NUMBERS) == told
