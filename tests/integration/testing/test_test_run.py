"""What a test of an application sees: its own plan on Spark, fed and driven by the test."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from drivetrain import (
    Application,
    Stream,
    Task,
    TaskContext,
    agg,
    partitioners,
    sinks,
    sources,
    windows,
)
from drivetrain.errors import InputError, OperatorError, UnavailableError, UserError
from drivetrain.spark.batch.spark_engine import SparkQuery
from drivetrain.testing import TestRun, run_app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "at timestamp, item string, amount bigint"

pytestmark = pytest.mark.usefixtures("spark")


def orders_of(app: Application) -> Stream:
    return app.read(
        sources.json("/not/there", schema=ORDERS, event_time="at", max_disorder="10 min", watch=True),
        name="orders",
    )


def shop() -> Application:
    app = Application("shop")
    paid = orders_of(app).filter("amount > 0", name="paid")
    hourly = paid.group_by("item").window(windows.tumbling("1 h"))
    hourly = hourly.aggregate(step="hourly", total=agg.sum("amount"))
    hourly.sink(sinks.parquet("/not/there/hourly"), name="out")
    daily = hourly.window(windows.tumbling("1 d")).aggregate(step="daily", best=agg.max("total"))
    daily.sink(sinks.parquet("/not/there/daily"), name="best")
    return app


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_windows_fire_when_the_clock_is_advanced_and_not_before() -> None:
    with TestRun(shop()) as run:
        run.send("orders", [{"at": "2026-01-01T00:10", "item": "tea", "amount": 3}])
        run.send("orders", [("2026-01-01T00:50", "tea", 4), ("2026-01-01T00:55", "tea", -4)])
        assert run.emitted("hourly") == []
        assert run.clock == dt.datetime(2026, 1, 1, 0, 45, tzinfo=dt.UTC)
        run.advance_clock("2026-01-01T01:00")
        assert run.emitted("hourly", "item", "total") == [{"item": "tea", "total": 7}]
        assert run.emitted("out") == run.emitted("hourly")
        assert run.emitted("daily") == []
        run.advance_clock(dt.datetime(2026, 1, 2, tzinfo=dt.UTC))
        assert run.emitted("daily", "best") == [{"best": 7}]


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_late_messages_and_those_inside_a_trunk_are_seen() -> None:
    with TestRun(shop()) as run:
        run.send("orders", [("2026-01-01T02:00", "tea", 1)])
        assert run.late("hourly") == []
        run.send("orders", [("2026-01-01T00:30", "tea", 5), ("2026-01-01T01:30", "tea", 6)])
        assert run.late("hourly", "amount") == [{"amount": 5}]
        assert run.emitted("paid", "amount") == [{"amount": 1}, {"amount": 5}, {"amount": 6}]
        run.send("orders", [("2026-01-01T00:40", "tea", 7)])
        assert run.late("hourly", "amount") == [{"amount": 5}, {"amount": 7}]
        run.end()
        assert Counter(row["total"] for row in run.emitted("hourly")) == Counter([6, 1])


def test_a_watched_processor_is_seen_in_the_run_itself() -> None:
    with TestRun(shop(), watch=["paid"]) as run:
        run.send("orders", [("2026-01-01T02:00", "tea", 1)])
        assert run.emitted("paid", "item") == [{"item": "tea"}]


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_run_ends_with_its_inputs() -> None:
    run = run_app(shop(), {"orders": [("2026-01-01T00:10", "tea", 3), ("2026-01-02T00:10", "cake", 4)]})
    assert [row["best"] for row in run.emitted("best")] == [3, 4]
    with pytest.raises(UserError, match="the run has ended"):
        run.send("orders", [])
    run.close()
    with pytest.raises(UserError, match="not open"):
        run.emitted("best")


def test_what_does_not_fit_is_an_error_where_it_is_sent() -> None:
    with TestRun(shop()) as run:
        with pytest.raises(UserError, match=r"no source 'order'[\s\S]*orders"):
            run.send("order", [])
        with pytest.raises(InputError, match=r"a column 'amuont'[\s\S]*did you mean \"amount\""):
            run.send("orders", [("2026-01-01T00:10", "tea", 1), {"amuont": 3}])
        with pytest.raises(InputError, match=r"row 2[\s\S]*amount: int64[\s\S]*'three'"):
            run.send("orders", [("2026-01-01T00:10", "tea", 1), ("2026-01-01T00:10", "tea", "three")])
        with pytest.raises(InputError, match=r"row 1, at: not a timestamp[\s\S]*noon"):
            run.send("orders", [("noon", "tea", 3)])
        with pytest.raises(InputError, match="expected 3 values"):
            run.send("orders", [("2026-01-01T00:10", "tea")])
        with pytest.raises(InputError, match="a single dict"):
            run.send("orders", {"item": "tea"})  # type: ignore[arg-type]
        with pytest.raises(UserError, match=r"no processor 'hour'[\s\S]*hourly"):
            run.emitted("hour")
        with pytest.raises(UserError, match="no window"):
            run.late("paid")
        run.send("orders", [("2026-01-01T00:10", "tea", 1)])
        run.end()
        assert run.emitted("hourly", "total") == [{"total": 1}]  # nothing of the refused rows
        with pytest.raises(UserError, match=r"no column 'totl'"):
            run.emitted("hourly", "totl")


def halves() -> Application:
    def halved(amount: int) -> int:
        return 10 // amount

    app = Application("halves")
    orders_of(app).with_columns(step="halves", half=halved).sink(sinks.none())
    return app


def test_an_error_of_the_applications_function_has_its_traceback() -> None:
    with TestRun(halves()) as run, pytest.raises(OperatorError, match="ZeroDivisionError") as caught:
        run.send("orders", [("2026-01-01T00:10", "tea", 0)])
    assert "return 10 // amount" in "".join(caught.value.__notes__)


def test_a_query_that_takes_its_time_to_end_still_has_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_end = SparkQuery._wait_for_end

    def wait_longer(query: SparkQuery) -> None:
        wait_for_end(query)
        time.sleep(1)

    monkeypatch.setattr(SparkQuery, "_wait_for_end", wait_longer)
    with TestRun(halves()) as run, pytest.raises(OperatorError, match="ZeroDivisionError"):
        run.send("orders", [("2026-01-01T00:10", "tea", 0)])


def test_dead_letters_are_seen() -> None:
    def halved(amount: int) -> int:
        return 10 // amount

    app = Application("halves")
    orders = app.read(sources.items([], "amount bigint"), name="orders")
    orders.map(halved, on_error="dead_letter", name="halves").sink(sinks.none(), name="out")
    with TestRun(app) as run:
        run.send("orders", [0, 5])
        assert run.emitted("halves") == [{"value": 2}]
        [letter] = run.dead_letters("halves")
        assert "ZeroDivisionError" in letter["error"]
        assert list(letter) == ["operator", "message", "file", "line", "error", "timestamp"]
        assert run.dead_letters("orders") == []


@pytest.mark.nightly("the unit tests of the test kit's input")
def test_messages_without_a_time_of_their_own_arrive_when_the_test_says() -> None:
    app = Application("lines")
    lines = app.read(sources.socket("localhost", 9), name="lines")
    counted = lines.window(windows.tumbling("1 min")).aggregate(step="counted", lines=agg.count())
    counted.sink(sinks.console())
    with TestRun(app, now="2026-01-01T00:00:30") as run:
        run.send("lines", ["one", "two"])
        run.advance_clock("2026-01-01T00:01:10")
        assert run.emitted("counted", "lines") == [{"lines": 2}]
        run.send("lines", ["three"])
        run.advance_clock("2026-01-01T00:02")
        assert run.emitted("counted", "lines") == [{"lines": 2}, {"lines": 1}]
        assert run.emitted("lines") == [{"value": "one"}, {"value": "two"}, {"value": "three"}]


def test_tables_are_the_rows_that_the_test_gives() -> None:
    app = Application("prices")
    prices = app.table(sources.csv("/not/there.csv", schema="item string, price double"), name="prices")
    orders_of(app).join(prices, on="item", name="priced").sink(sinks.console())
    with TestRun(app, {"prices": [("tea", 4.0)], "orders": [("2026-01-01T00:10", "tea", 3)]}) as run:
        run.send("orders", [("2026-01-01T00:11", "ice", 3)])
        assert run.emitted("priced", "item", "price") == [{"item": "tea", "price": 4.0}]
    with (
        pytest.raises(UserError, match=r"the table 'prices' has no rows[\s\S]*real=\['prices'\]"),
        TestRun(app),
    ):
        pass


def test_streams_are_joined_as_the_clock_of_both_allows() -> None:
    app = Application("paid")
    orders, payments = (
        orders_of(app),
        app.read(
            sources.kafka(
                "broker:9092",
                topic="payments",
                format="json",
                schema="at timestamp, item string, euros double",
                event_time="at",
            ),
            name="payments",
        ),
    )
    payments = payments.drop("at")
    orders.join(payments, on="item", within="1 h", name="both").sink(sinks.none())
    with TestRun(app) as run:
        run.send("orders", [("2026-01-01T00:10", "tea", 3), ("2026-01-01T00:10", "ice", 3)])
        run.send("payments", [("2026-01-01T00:40", "tea", 12.0), ("2026-01-01T05:00", "ice", 2.0)])
        assert run.emitted("both", "item", "euros") == [{"item": "tea", "euros": 12.0}]


class Shout(Task[str, str]):
    stateful = True

    def on_start(self, context: TaskContext) -> None:
        self.seen = 0

    def on_next(self, message: str) -> list[str]:
        self.seen += 1
        return [f"{self.seen} {message.upper()}"]


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("batch-begins", marks=pytest.mark.nightly("another point; test_shells_under_kills")),
        pytest.param("before-sink", marks=pytest.mark.nightly("another point; test_shells_under_kills")),
        "after-sink",
        pytest.param("before-commit", marks=pytest.mark.nightly("another point; test_shells_under_kills")),
    ],
)
def test_a_run_that_dies_goes_on_with_the_same_results(point: str) -> None:
    app = Application("shouts")
    lines = app.read(sources.text("/not/there", watch=True), name="lines")
    shouts = lines.process(Shout, partitioner=partitioners.hash("value"), name="shouts")
    shouts.sink(sinks.parquet("/not/there/out"), name="out")
    with TestRun(app) as run:
        run.send("lines", ["a"])
        run.crash_at(point)
        run.send("lines", ["b"])
        run.send("lines", ["c"])
        assert [row["value"] for row in run.emitted("out")] == ["1 A", "2 B", "3 C"]


@pytest.mark.nightly("test_a_timer_survives_the_run_that_has_set_it")
def test_channels_and_windows_survive_a_death_and_a_restart() -> None:
    with TestRun(shop()) as run:
        run.send("orders", [("2026-01-01T00:10", "tea", 3)])
        run.crash_at("after-entry")
        run.advance_clock("2026-01-01T01:00")
        run.restart()
        assert run.clock == dt.datetime(2026, 1, 1, 1, tzinfo=dt.UTC)
        run.send("orders", [("2026-01-01T00:20", "tea", 100), ("2026-01-01T01:20", "tea", 4)])
        run.advance_clock("2026-01-02T00:00")
        assert run.emitted("hourly", "total") == [{"total": 3}, {"total": 4}]
        assert run.emitted("daily", "best") == [{"best": 4}]
        assert run.late("hourly", "amount") == [{"amount": 100}]


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_death_that_never_happens_is_an_error() -> None:
    def never() -> None:
        with TestRun(shop()) as run:
            run.crash_at("after-record")
            run.send("orders", [("2026-01-01T00:10", "tea", 3)])

    with pytest.raises(UserError, match="never reached after-record"):
        never()
    with TestRun(shop()) as run, pytest.raises(UserError, match=r"no such point[\s\S]*before-commit"):
        run.crash_at("at-noon")


def test_a_real_sink_is_written_and_seen(tmp_path: Path) -> None:
    app = Application("copy")
    orders_of(app).sink(sinks.json(tmp_path / "out"), name="out")
    with TestRun(app, real=["out"]) as run:
        run.send("orders", [("2026-01-01T00:10", "tea", 3)])
        assert run.emitted("out", "item", "amount") == [{"item": "tea", "amount": 3}]
        run.end()
    assert "tea" in "".join(f.read_text() for f in (tmp_path / "out").rglob("*.json*"))


def test_states_can_be_asked() -> None:
    app = Application("counts")
    orders_of(app).group_by("item").count(name="counts").sink(sinks.none())
    with TestRun(app) as run:
        run.send("orders", [("2026-01-01T00:10", "tea", 3), ("2026-01-01T00:11", "tea", 3)])
        assert run.state("counts").get("tea") == 2


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_function_that_waits_for_ever_ends_the_wait() -> None:
    def waiting(amount: int) -> int:
        import time

        time.sleep(30)
        return amount

    app = Application("waits")
    orders_of(app).with_columns(step="waits", n=waiting).sink(sinks.none())
    with (
        pytest.raises(UnavailableError, match=r"the run waits for fragment[\s\S]*orders"),
        TestRun(app, timeout="5 s") as run,
    ):
        run.send("orders", [("2026-01-01T00:10", "tea", 3)])


@pytest.mark.nightly("other tests of this module end runs")
def test_nothing_is_left_when_a_run_is_over(spark: SparkSession) -> None:
    before = set(Path("/dev/shm").glob("drivetrain-test-*/run-*"))
    with TestRun(shop()) as run:
        run.send("orders", [("2026-01-01T00:10", "tea", 3)])
        made = set(Path("/dev/shm").glob("drivetrain-test-*/run-*")) - before
        assert made
    assert [place for place in made if (place / "inputs").exists()] == []
    assert [query.name for query in spark.streams.active if "shop-test" in (query.name or "")] == []


def test_a_date_that_is_none_is_an_error_of_its_row_and_column() -> None:
    app = Application("days")
    app.read(sources.items([], "day date, amount bigint"), name="days").sink(sinks.none(), name="out")
    with TestRun(app) as run:
        with pytest.raises(InputError, match=r"days, row 2, day: not a date[\s\S]*'Monday'"):
            run.send("days", [("2026-01-01", 1), ("Monday", 2)])
        run.send("days", [("2026-01-01", 1), (dt.date(2026, 1, 2), 2)])
        assert [row["day"] for row in run.emitted("out")] == [dt.date(2026, 1, 1), dt.date(2026, 1, 2)]


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_the_delivery_of_the_configuration_is_that_of_the_run() -> None:
    with TestRun(shop(), config={"run.delivery": "at most once"}) as run:
        assert run._run is not None
        assert run._run._run.plan.graph.delivery == "at most once"
        run.send("orders", [("2026-01-01T00:10", "tea", 3)])
        run.advance_clock("2026-01-01T01:00")
        assert run.emitted("hourly", "total") == [{"total": 3}]
