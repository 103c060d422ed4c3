"""Where a Kafka source begins and ends, against a topic in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from drivetrain.api.connectors.kafka import Kafka, TopicPosition
from drivetrain.connectors.kafka.kafka_admin import KafkaAdmin, Partition, Topic
from drivetrain.connectors.kafka.message_decoder import bad_message
from drivetrain.connectors.kafka.opened_kafka import OpenedKafka
from drivetrain.connectors.kafka.start_and_end import Places, nested, offsets_of, resolve_end, resolve_start
from drivetrain.errors import InputError
from drivetrain.spark.connector.source import Position, SourceContext


@dataclasses.dataclass
class Topics:
    """Partitions with the timestamps of their messages, ms; `gone` of each were deleted."""

    times: dict[Partition, list[int]]
    gone: dict[Partition, int] = dataclasses.field(default_factory=dict)

    def offsets(self, partitions: Iterable[Partition], at: str | int) -> dict[Partition, int]:
        return {p: self._offset(self.times[p], self.gone.get(p, 0), at) for p in partitions}

    def _offset(self, times: list[int], gone: int, at: str | int) -> int:
        if at == "earliest":
            return gone
        if at == "latest":
            return len(times)
        return next((n for n, ms in enumerate(times) if n >= gone and ms >= int(at)), len(times))

    @property
    def admin(self) -> KafkaAdmin:
        return cast(KafkaAdmin, self)


TOPICS = st.lists(st.lists(st.integers(0, 50), max_size=12), min_size=1, max_size=3).map(
    lambda found: Topics({("t", n): times for n, times in enumerate(found)})
)


@given(TOPICS, st.integers(0, 50))
def test_from_a_time_on_no_message_is_missed_however_disordered(topics: Topics, ms: int) -> None:
    start = resolve_start(topics.admin, TopicPosition(ms=ms), list(topics.times), 0, "here")
    for partition, times in topics.times.items():
        assert all(time < ms for time in times[: start[partition]])


@given(TOPICS, st.integers(0, 60), st.integers(0, 50))
def test_up_to_a_time_no_message_is_missed_that_is_not_behind_by_more_than_the_disorder(
    topics: Topics, ms: int, disorder_ms: int
) -> None:
    end = resolve_end(topics.admin, TopicPosition(ms=ms), list(topics.times), disorder_ms, "here")
    for partition, times in topics.times.items():
        for n, time in enumerate(times):
            behind = max(times[: n + 1]) - time
            assert time >= ms or behind > disorder_ms or n < end[partition]


def test_offsets_that_kafka_has_not_or_that_name_no_partition_are_refused() -> None:
    topics = Topics({("t", 0): [1, 2, 3]}, gone={("t", 0): 1})
    for offset in (0, 4):
        with pytest.raises(InputError, match="cannot start at this offset"):
            resolve_start(topics.admin, TopicPosition(offsets=(("", 0, offset),)), [("t", 0)], 0, "here")
    with pytest.raises(InputError, match="no such partition"):
        resolve_start(topics.admin, TopicPosition(offsets=(("", 7, 1),)), [("t", 0)], 0, "here")
    several = Topics({("a", 0): [1], ("b", 0): [1]})
    with pytest.raises(InputError, match="must name them"):
        resolve_start(several.admin, TopicPosition(offsets=(("", 0, 1),)), list(several.times), 0, "here")


def test_places_are_read_back_as_written(tmp_path: Path) -> None:
    assert Places.load(str(tmp_path)) is None
    places = Places({("a", 0): 5, ("b", 11): 7}, {("a", 0): 9}, {"a": "id-a"}, {("a", 0): 0})
    places.save(str(tmp_path / "made"))
    assert Places.load(str(tmp_path / "made")) == places
    assert offsets_of(nested(places.first)) == places.first


def test_partitions_keep_dense_numbers_when_partitions_and_topics_are_added(tmp_path: Path) -> None:
    places = Places()
    assert places.know({"b": Topic("1", 2), "c": Topic("2", 1)})
    assert places.numbers == {("b", 0): 0, ("b", 1): 1, ("c", 0): 2}
    places.save(str(tmp_path))
    again = Places.load(str(tmp_path))
    assert again is not None
    assert again.know({"a": Topic("3", 1), "b": Topic("1", 3), "c": Topic("2", 1)})
    assert again.numbers == {**places.numbers, ("a", 0): 3, ("b", 2): 4}
    assert not again.know({"b": Topic("1", 3)})


def test_how_far_it_is_counts_to_the_end_and_no_further() -> None:
    places = Places({("t", 0): 10, ("t", 1): 0}, {("t", 0): 20, ("t", 1): 0}, {"t": "id"})
    source = Kafka(bootstrap="b:1", topics=("t",), end=TopicPosition(word="latest"))
    context = SourceContext(cast(SparkSession, None), "nowhere", "app", "source")
    rows = cast(DataFrame, None)
    watch = OpenedKafka(source, Topics({}).admin, places, context, None, rows, 10, is_partitioned=True)
    assert watch.position(None) == watch.position('{"t":{"0":10,"1":0}}')
    assert watch.position(None) == Position(0, 10, finished=False)
    assert watch.position('{"t":{"0":15,"1":9}}').done == 5
    assert watch.position('{"t":{"0":25,"1":9}}').finished
    assert watch.position('{"t":{"0":25,"1":9}}').done == 10


def test_what_spark_says_of_a_bad_message_is_told_by_topic_partition_and_offset() -> None:
    text = (
        "[USER_RAISED_EXCEPTION] drivetrain: a Kafka message cannot be read: "
        '{"topic":"t","partition":1,"offset":9,"reason":"the key is not \\"UTF-8\\" {",'
        '"end":0} SQLSTATE: P0001'
    )
    told = bad_message(text, "here")
    assert told is not None
    assert "topic t, partition 1, offset 9" in str(told)
    assert 'the key is not "UTF-8" {' in str(told)
    assert bad_message("something else", "here") is None


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), max_size=10))
def test_what_is_gone_is_counted_once_whatever_comes_again_and_whoever_dies(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[int, int, bool]]
) -> None:
    directory = str(tmp_path_factory.mktemp("places"))
    places, seen = Places(), set[int]()
    begin = 0
    for start, length, dies in told:
        begin = max(begin, start)  # a batch begins where one before it did, or later
        places.lose(("t", 0), begin, begin + length)
        places.lose(("t", 0), begin, begin + length)
        seen |= set(range(begin, begin + length))
        places.save(directory)
        places = Places.load(directory) or Places() if dies else places
    assert places.lost == len(seen)
