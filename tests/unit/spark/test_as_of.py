"""Joins as of a time, as Spark's workers do them, beside a naive search: any batches, any disorder."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from fake_group import FakeGroup

from drivetrain import Application, sinks, sources
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.plan.planner import plan
from drivetrain.core.state.paged_state import BUCKETS
from drivetrain.errors import GraphError
from drivetrain.spark.channel.watermark import watermark_of
from drivetrain.spark.compile.as_of import AsOfFunction, SidePack
from drivetrain.spark.compile.deduplication import UnpackRows

TS = pa.timestamp("us", "UTC")
ADDED = pa.schema([("rule", pa.string()), ("above", pa.int64())])
Message = tuple[int, str | None, int]
Version = tuple[int, str | None, str | None, int]


class Buckets:
    """Spark, as far as the join sees it: groups, batches, timeouts."""

    def __init__(self, on: tuple[str, ...], per: tuple[str, ...], *, left: bool) -> None:
        self.packs = (SidePack(b"m", on, ()), SidePack(b"v", on, per))
        self.function = AsOfFunction(ADDED, left, "joined (app.py:1)")
        self.groups: dict[int, FakeGroup] = defaultdict(FakeGroup)
        self.late = 0

    def batch(self, messages: list[Message], versions: list[Version], clock_ms: int) -> list[tuple[Any, ...]]:
        payloads: dict[int, list[bytes]] = defaultdict(list)
        for pack, names, rows in (
            (self.packs[0], ("key", "n"), messages),
            (self.packs[1], ("key", "rule", "above"), versions),
        ):
            for packed in pack(iter(batches(names, rows))):
                for bucket, payload in zip(*(packed.column(i).to_pylist() for i in (0, 1)), strict=True):
                    payloads[bucket].append(payload)
        found: list[tuple[Any, ...]] = []
        for bucket in range(BUCKETS):
            group = self.groups[bucket]
            due = group.timeout_ms is not None and group.timeout_ms < watermark_of(clock_ms)
            if bucket in payloads or due:
                group.clock_ms, group.hasTimedOut, group.timeout_ms = clock_ms, bucket not in payloads, None
                frame = pd.DataFrame({"payload": payloads[bucket]})
                for out in self.function((bucket,), iter([frame]), group):
                    self.late += out["late"][0]
                    found += [row for payload in out["payload"] if payload for row in rows_of(payload)]
        return found


def batches(names: tuple[str, ...], rows: list[Any]) -> list[pa.RecordBatch]:
    if not rows:
        return []
    times, *columns = zip(*rows, strict=True)
    types = [pa.string(), *([pa.string()] if len(names) == 3 else []), pa.int64()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    stamps = pa.array([ms * 1000 for ms in times], TS)
    whole = pa.RecordBatch.from_arrays([*arrays, stamps], names=[*names, "__ts"])
    half = len(rows) // 2
    return [whole.slice(0, half), whole.slice(half)]


def rows_of(payload: bytes) -> list[tuple[Any, ...]]:
    given = pa.RecordBatch.from_arrays([pa.array([payload], pa.binary())], names=["payload"])
    names = ("__ts", "key", "n", "rule", "above")
    made = [row for batch in UnpackRows(names)(iter([given])) for row in batch.to_pylist()]
    return [(pa.scalar(row["__ts"], TS).value // 1000, *(row[name] for name in names[1:])) for row in made]


def model(
    messages: list[Message], versions: list[Version], *, on: bool, per: bool, left: bool
) -> list[tuple[Any, ...]]:
    """For each message the newest version of each thing, by looking at all of them."""
    found = []
    for ms, key, n in messages:
        newest: dict[Any, Version] = {}
        for version in sorted(versions, key=lambda v: (v[0], v[3])):
            matches = not on or (key is not None and version[1] == key)
            if matches and version[0] <= ms:
                newest[version[2] if per else ""] = version
        found += [(ms, key, n, rule, above) for _, _, rule, above in newest.values()]
        if left and not newest:
            found.append((ms, key, n, None, None))
    return sorted(found, key=repr)


@pytest.mark.parametrize("seed", range(24))
def test_each_message_sees_the_newest_versions_at_its_time(seed: int) -> None:
    draw = random.Random(seed)
    on, per, left = (*draw.choice([(True, False), (True, True), (False, True)]), draw.random() < 0.5)
    keys = ["a", "b", "c", None]
    messages = [(draw.randrange(1000), draw.choice(keys), n) for n in range(draw.choice([2, 40, 150]))]
    versions = [
        (draw.randrange(0, 1000, 7), draw.choice(keys), draw.choice(["r", "s", None]), above)
        for above in range(10, 10 + draw.choice([0, 3, 60]))
    ]
    if not on:  # the key of versions plays no part
        versions = [(ms, "", rule, above) for ms, _, rule, above in versions]
    arriving = sorted([*messages, *versions], key=lambda row: row[0] + draw.randrange(100))
    spark, found, newest = Buckets(("key",) if on else (), ("rule",) if per else (), left=left), [], 0
    while arriving:
        size = draw.choice([1, 7, 40])
        now, arriving = arriving[:size], arriving[size:]
        of_now = [row for row in now if len(row) == 3], [row for row in now if len(row) == 4]
        found += spark.batch(*of_now, newest - 100)
        newest = max(newest, *(row[0] for row in now))
    found += spark.batch([], [], FINAL_CLOCK_MS)
    assert sorted(found, key=repr) == model(messages, versions, on=on, per=per, left=left)
    assert spark.late == 0
    assert not any(group.exists and group.timeout_ms is not None for group in spark.groups.values())


def test_versions_that_no_message_can_see_are_dropped() -> None:
    spark = Buckets(("key",), (), left=False)
    for ms in range(0, 100_000, 1000):
        spark.batch([], [(ms, "a", "r", ms)], ms - 500)
    sizes = [len(group.value[0]) for group in spark.groups.values() if group.value]
    assert len(sizes) == 1
    assert sizes[0] < 4_000
    spark.batch([(100_500, "a", 1)], [], 99_500)
    assert spark.batch([], [], 100_600) == [(100_500, "a", 1, "r", 99_000)]


def test_a_late_version_counts_for_later_messages_only_and_a_late_message_is_left_out() -> None:
    spark = Buckets(("key",), (), left=True)
    spark.batch([(100, "a", 1)], [(50, "a", "r", 1)], 0)
    found = spark.batch([(110, "a", 2), (300, "a", 3)], [(60, "a", "r", 2)], 200)
    assert found == [(100, "a", 1, "r", 1)]
    assert spark.late == 2
    assert spark.batch([], [], 400) == [(300, "a", 3, "r", 2)]


def test_a_version_at_the_time_of_the_message_counts_though_it_comes_after_it() -> None:
    spark = Buckets(("key",), (), left=True)
    spark.batch([(100, "a", 1)], [(50, "a", "r", 1)], 0)
    assert spark.batch([], [(100, "a", "r", 2)], 100) == []
    assert spark.batch([], [], 150) == [(100, "a", 1, "r", 2)]


def streams() -> tuple[Any, Any]:
    app = Application("sales")
    read = [
        app.read(sources.json(f"{name}/", schema=schema, event_time="at"), name=name)
        for name, schema in (
            ("sales", "item string, at timestamp"),
            ("prices", "item string, at timestamp, p int"),
        )
    ]
    return read[0], read[1].select("item", "p", step="known")


def test_the_join_is_a_stateful_operator_with_late_messages() -> None:
    sales, prices = streams()
    sales.join_as_of(prices, on="item", per="p", name="priced").sink(sinks.none())
    made = plan(sales._app.graph())
    shown = made.operators["priced"]
    assert (shown.how, shown.text) == ("task", "inner on item with the newest for each p, as of each message")
    assert next(f for f in made.fragments if f.stateful).stateful == "priced"


def test_joins_that_have_no_meaning_are_refused() -> None:
    sales, prices = streams()
    table = sales._app.table(sources.csv("kinds.csv", schema="item string"))
    for arguments, what in (
        ({"versions": prices}, "which versions replace each other"),
        ({"versions": prices, "on": "item", "how": "full"}, "no such join"),
        ({"versions": table, "on": "item"}, "a table has no versions"),
    ):
        with pytest.raises(GraphError, match=what):
            sales.join_as_of(**arguments)
