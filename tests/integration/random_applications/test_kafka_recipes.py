"""What recipes with Kafka send to their topics, what is compared of what theirs hold, without a broker."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drivetrain.code.application_file import load_application

from .conftest import FakeBroker, Sent
from .drawing import recipe_of
from .drawing_kafka import TRANSACTION_POINTS
from .drawing_sources import FAR_US
from .model import expected, keeping
from .program import program_of
from .recipe import Recipe, Row, Sink, Source, Target, Topic, Window
from .running import written
from .shrinking import is_sound, smaller_ones
from .test_random_applications import DEFAULT
from .values import instant, same

WITH_KAFKA = [made for made in map(recipe_of, range(300)) if made.needs_kafka]
READING = [made for made in WITH_KAFKA if any(s.kind == "kafka" for s in made.sources)]
S = 1_000_000
"""A second in µs."""


def kafka(*rows: Row, places: int = 1, **more: Any) -> Source:
    return Source("kafka", (rows,), places=places, **more)


def recipe(source: Source, *steps: Any, sink: Sink | None = None, **more: Any) -> Recipe:
    return Recipe(0, "string", (source,), steps, (sink or Sink(len(steps), "parquet"),), **more)


class FakeMessage:
    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value


def test_a_quarter_of_the_recipes_has_kafka_of_every_kind() -> None:
    assert 50 < len(WITH_KAFKA) < 100
    sources = [s for made in WITH_KAFKA for s in made.sources if s.kind == "kafka"]
    assert {s.places for s in sources} == {1, 2, 3}
    assert {s.topic.count for s in sources} == {1, 2}
    assert {s.topic.sent for s in sources} == {"plainly", "committed", "after aborted"}
    assert {s.topic.keyed for s in sources} == {s.topic.stamped for s in sources} == {True, False}
    assert {bool(s.topic.idle_ms) for s in sources} == {bool(s.bad) for s in sources} == {True, False}
    assert any(row[1] is None for s in sources for row in s.rows)
    targets = [sink.target for made in WITH_KAFKA for sink in made.sinks if sink.kind == "kafka"]
    assert {t.how for t in targets} == {"row", "row with key", "number with key"}
    assert {t.guarantee for t in targets} == {"exactly once", "at least once"}
    assert any(made.watched for made in READING)
    assert any(made.crashes for made in READING)


def test_one_of_the_default_seeds_reads_and_writes_kafka_and_dies() -> None:
    (known,) = (made for made in map(recipe_of, DEFAULT) if made.needs_kafka)
    assert all(any(end.kind == "kafka" for end in side) for side in (known.sources, known.sinks))
    assert known.watched
    assert known.sources[0].topic.idle_ms > 0
    assert known.crashes[0][0] == "after-transaction"


def test_crashes_are_in_transactions_only_where_there_are_some() -> None:
    dying = [made for made in WITH_KAFKA if any(p in TRANSACTION_POINTS for p, _ in made.crashes)]
    assert dying
    assert all(
        any(s.kind == "kafka" and s.target.guarantee == "exactly once" for s in made.sinks) for made in dying
    )


@pytest.mark.parametrize("made", READING[:30], ids=lambda made: str(made.seed))
def test_a_topic_is_filled_once_with_the_rows_of_its_source(
    tmp_path: Path, fake_broker: FakeBroker, made: Recipe
) -> None:
    file = written(made, tmp_path, f"filling_{made.seed}")
    for _ in range(2):
        load_application(str(file), {})
    for i, source in enumerate(made.sources):
        if source.kind == "kafka":
            count = source.topic.count
            names = [f"filling_{made.seed}-in{i}", f"filling_{made.seed}-in{i}b"][:count]
            assert sum(fake_broker.partitions[name] for name in names) == max(source.places, 1)
            sent = {name: [_row_of(source, told) for told in fake_broker.topics[name]] for name in names}
            for place in range(source.places):
                own = [[instant(ts), same(key), n] for ts, key, n, at in source.rows if at == place]
                there = [row for row in sent[names[place % count]] if row and row[0] == place // count]
                assert [row[1:] for row in there] == own
            bad = [row for name in names for row in sent[name] if not row]
            assert len(bad) == min(source.bad, len(source.files))
            if source.topic.sent == "after aborted":
                assert all(fake_broker.aborted[name] == fake_broker.topics[name] for name in names)


def _row_of(source: Source, told: Sent) -> list[Any]:
    """Partition, time, key and n; nothing if it is a bad message."""
    place, key, value, ms = told
    if value == "{":
        return []
    columns = {"ts": None, "key": None, "n": None} if value is None else json.loads(value)
    ts = instant(ms * 1000) if source.topic.stamped else columns["ts"]
    return [place, ts, key if source.topic.keyed else same(columns["key"]), columns["n"]]


def test_what_is_late_depends_on_its_partition_alone() -> None:
    source = kafka((9 * S, "a", 1, 0), (S, "a", 2, 1), (2 * S, "a", 3, 0), places=2, disorder_ms=1000)
    assert keeping(source).rows == source.rows[:2]
    window = Window(inputs=(0,), kind="tumbling", how="count", size_ms=1000)
    wanted = expected(recipe(replace(source, breaks_promise=True), window))[0]
    assert wanted.least is not None
    assert sorted(wanted.rows - wanted.least) == [(3 * S - 1000, "a", 1, 2 * S, 3 * S)]


def test_a_partition_that_holds_the_clock_for_ever_makes_no_sound_recipe() -> None:
    rows = ((0, "a", 1, 0), (FAR_US, "a", 0, 0))
    silent = kafka(*rows, places=2)
    assert not is_sound(recipe(silent, watched=True))
    assert is_sound(recipe(silent))
    assert is_sound(recipe(replace(silent, topic=Topic(idle_ms=500)), watched=True))
    behind = kafka(*rows, (0, "a", 1, 1), places=2, topic=Topic(idle_ms=500))
    assert not is_sound(recipe(behind, watched=True))


def test_smaller_recipes_keep_the_promise_of_their_partitions() -> None:
    apart = kafka((50 * S, "a", 1, 0), (0, "a", 2, 1), places=2)
    smaller = list(smaller_ones(recipe(apart)))
    assert smaller
    assert all(made.sources[0].places == 2 or len(made.sources[0].rows) < 2 for made in smaller)


def test_smaller_recipes_send_to_partitions_that_are_there() -> None:
    for made in READING[:12]:
        for smaller in smaller_ones(made):
            compile(program_of(smaller), "smaller", "exec")
            topics = [s for s in smaller.sources if s.kind == "kafka"]
            assert all(row[3] < max(s.places, 1) for s in topics for row in s.rows)
            assert all(s.topic == Topic() for s in smaller.sources if s.kind != "kafka")


def test_a_message_is_read_as_the_row_that_was_sent() -> None:
    from .topics import row_of

    value = b'{"key":"a","n":1,"at":"2023-11-14T22:13:20.000001Z"}'
    row = {"key": "a", "n": 1, "at": 1_700_000_000_000_001}
    told = row_of(FakeMessage(None, value), Target("row"), "string")
    assert {name: same(part) for name, part in told.items()} == row
    assert row_of(FakeMessage(b"a", value), Target("row with key"), "string")["key"] == "a"
    for key, target in ((b"b", "row with key"), (None, "row with key"), (b"a", "row")):
        assert row_of(FakeMessage(key, value), Target(target), "string")["key"] != "a"  # type: ignore[arg-type]
    number = Target("number with key")
    assert row_of(FakeMessage(b"7", None), number, "string") == {"key": "7", "n": None}
    assert row_of(FakeMessage(b"7", b"0"), number, "bigint") == {"key": 7, "n": 0}
    assert row_of(FakeMessage(None, b"-3"), number, "bigint") == {"key": None, "n": -3}


@pytest.mark.parametrize(
    ("guarantee", "crashes", "is_said"),
    [
        ("at least once", (("after-sink", 1),), False),
        ("at least once", (), True),
        ("exactly once", (("after-sink", 1),), True),
    ],
)
def test_a_message_may_come_again_only_after_a_crash_and_at_least_once(
    monkeypatch: pytest.MonkeyPatch, guarantee: Any, crashes: Any, *, is_said: bool
) -> None:
    from . import checking

    sink = Sink(0, "kafka", Target("number with key", guarantee))
    made = recipe(kafka((0, "a", 1, 0), (1, "b", 2, 0)), sink=sink, crashes=crashes)

    def found(*rows: tuple[str, int]) -> list[str]:
        monkeypatch.setattr(checking, "found_rows", lambda *_: Counter(rows))
        return checking.differences(made, Path("nowhere"))

    assert found(("a", 1), ("b", 2)) == []
    assert bool(found(("a", 1), ("b", 2), ("b", 2))) == is_said
    assert found(("a", 1), ("a", 1))
    assert found(("a", 1), ("b", 2), ("c", 3))


def test_every_partition_without_an_end_moves_its_clock_or_becomes_idle() -> None:
    assert [seed for seed in (*range(600, 700), 890, 1369, 1628) if not is_sound(recipe_of(seed))] == []
