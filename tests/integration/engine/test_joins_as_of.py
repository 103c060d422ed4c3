"""Joins with a table that changes, on Spark: as of each message, with disorder and after crashes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at, ms

from drivetrain import Application, sinks, sources, timestamp
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import OperatorTypeError

Sale = tuple[int, str, int]
Price = tuple[int, str, int]


def drawn(seed: int) -> tuple[list[Sale], list[Price]]:
    """Sales and prices, out of order by less than two seconds."""
    draw = random.Random(seed)
    sales = [(draw.randrange(60_000), draw.choice("abcd"), n) for n in range(120)]
    prices = [(draw.randrange(60_000), draw.choice("abc"), n) for n in range(1000, 1040)]
    return tuple(sorted(rows, key=lambda row: row[0] + draw.randrange(2_000)) for rows in (sales, prices))  # type: ignore[return-value]


def wanted(sales: list[Sale], prices: list[Price]) -> list[tuple[Any, ...]]:
    """What each sale cost, by looking at all prices."""
    found = []
    for ms_, item, n in sales:
        known = [(t, price) for t, i, price in prices if i == item and t <= ms_]
        found.append((ms_, item, n, max(known)[1] if known else None))
    return sorted(found, key=repr)


def written(drive: Harness, name: str, rows: list[Any], number: str) -> Path:
    """A directory with a file for each batch."""
    directory: Path = drive.directory / name
    directory.mkdir(exist_ok=True)
    for i in range(0, len(rows), 20):
        columns = zip(*[(at(t), item, n) for t, item, n in rows[i : i + 20]], strict=True)
        types = (pa.timestamp("us", "UTC"), pa.string(), pa.int64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        pq.write_table(pa.table(arrays, names=["ts", "item", number]), directory / f"{i:03}.parquet")
    return directory


def application(drive: Harness, sales: list[Sale], prices: list[Price]) -> Application:
    app = Application("shop")
    read = [
        app.read(sources.parquet(written(drive, *given), event_time="ts", max_disorder="2 s"), name=given[0])
        for given in (("sales", sales, "n"), ("prices", prices, "price"))
    ]
    priced = read[0].join_as_of(read[1].select("item", "price"), on="item", how="left", name="priced")
    drive.sink(priced.with_columns(at=timestamp()))
    return app


def found(drive: Harness) -> list[tuple[Any, ...]]:
    rows = drive.rows()
    assert all(row["at"] == row["ts"] for row in rows), "a result has the time of its message"
    return sorted(((ms(r["ts"]), r["item"], r["n"], r["price"]) for r in rows), key=repr)


@pytest.mark.nightly("random applications")
def test_each_message_gets_the_version_of_its_time_though_the_run_dies(drive: Harness) -> None:
    sales, prices = drawn(1)
    for point, times in [(CrashPoint.AFTER_SINK, 2), (CrashPoint.BEFORE_COMMIT, 3)]:
        left = [times]

        def die(at_point: CrashPoint, of: CrashPoint = point, left: list[int] = left) -> None:
            left[0] -= at_point is of
            if left[0] == 0:
                raise RuntimeError("died")

        with armed(die), pytest.raises(Exception, match="died"):
            drive.run(application(drive, sales, prices), run__max_batch_bytes="1 KiB")
    drive.run(application(drive, sales, prices), run__max_batch_bytes="1 KiB")
    assert found(drive) == wanted(sales, prices)


def test_rules_that_change_are_seen_by_every_message(drive: Harness) -> None:
    sales, rules = drawn(2)
    app = Application("rules")
    schema = "ts timestamp, {} string, {} bigint"
    read = [
        app.read(
            sources.items([(at(t), *row) for t, *row in rows], schema=schema.format(*names)), name=name
        ).event_time("ts", max_disorder="2 s", name=f"{name}-time")
        for name, rows, names in (("sales", sales, ("item", "n")), ("rules", rules, ("rule", "above")))
    ]
    hits = (
        read[0]
        .join_as_of(read[1].select("rule", "above"), per="rule", name="hits")
        .filter("above % 3 = n % 3")
    )
    drive.sink(hits)
    drive.run(app)
    wanted = []
    for t, item, n in sales:
        newest = {rule: (at_ms, above) for at_ms, rule, above in sorted(rules) if at_ms <= t}
        wanted += [(t, item, n, rule, above) for rule, (_, above) in newest.items() if above % 3 == n % 3]
    assert wanted
    rows = [(ms(r["ts"]), r["item"], r["n"], r["rule"], r["above"]) for r in drive.rows()]
    assert sorted(rows) == sorted(wanted)


@pytest.mark.parametrize(
    ("select", "what"),
    [
        ({"item": "1", "price": "price"}, "the column 'item' has two types"),
        ({"item": "item", "n": "price"}, "both sides of the join have a column 'n'"),
        ({"price": "price"}, "there is no column 'item'"),
    ],
)
def test_columns_that_do_not_fit_are_refused(drive: Harness, select: dict[str, str], what: str) -> None:
    app = Application("wrong")
    rows = [(at(1), "a", 1)]
    sales, prices = (
        app.read(sources.items(rows, schema=f"ts timestamp, item string, {n} bigint")).event_time("ts")
        for n in ("n", "price")
    )
    sales.join_as_of(prices.select(**select), on="item").sink(sinks.none())
    with pytest.raises(OperatorTypeError, match=what):
        drive.run(app)
