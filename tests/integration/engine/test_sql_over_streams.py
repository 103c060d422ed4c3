"""SQL over streams: Spark runs statements as it runs the operators, and lets no aggregate of a batch pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from harness import Harness, at, events

from drivetrain import Application, agg, sinks, sources, windows
from drivetrain.api.expressions.sql.statement import AGGREGATES
from drivetrain.api.operations import SelectSql
from drivetrain.errors import OperatorTypeError
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.operators import STATELESS
from drivetrain.spark.compile.surroundings import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [(at(ms), f"k{ms % 3}", ms % 7, [f"t{i}" for i in range(ms % 3)]) for ms in range(0, 4000, 130)]
SHUFFLED = [ROWS[(i * 11) % len(ROWS)] for i in range(len(ROWS))]
SCHEMA = "ts timestamp, key string, n bigint, tags array<string>"


def compiled(spark: SparkSession, statement: str, operation: SelectSql | None = None) -> Frame:
    made = Application("columns").read(sources.text("in/")).sql(statement)
    made.sink(sinks.none())
    node = made._app.graph().nodes[made.id]
    if operation is not None:
        object.__setattr__(node, "operation", operation)
    frame = Frame(spark.sql("select 1 as a, array(2, 3) as xs, timestamp_millis(7) as __ts"))
    return STATELESS[SelectSql](node, [frame], cast(Surroundings, None))


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("SELECT *, a + 1 AS b, b * 2 AS c FROM this", [{"a": 1, "xs": [2, 3], "b": 2, "c": 4}]),
        ("SELECT this.* EXCEPT (xs) FROM this", [{"a": 1}]),
        ("SELECT x AS `the x` FROM this t LATERAL VIEW explode(t.xs) v AS x WHERE x > 2", [{"the x": 3}]),
        ("SELECT explode(xs) AS x FROM this", [{"x": 2}, {"x": 3}]),
        ("SELECT unix_millis(timestamp()) AS ms FROM this", [{"ms": 7}]),
        ("SELECT a FROM this WHERE a > 1", []),
    ],
)
def test_statements_compute_columns_and_keep_the_time(
    spark: SparkSession, statement: str, wanted: list[dict[str, Any]]
) -> None:
    frame = compiled(spark, statement)
    assert [row.asDict() for row in frame.df.select(*[f"`{c}`" for c in frame.columns]).collect()] == wanted
    assert frame.timed
    assert not [t for t in spark.catalog.listTables() if t.name.startswith("__this")]


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("SELECT a, xs AS a FROM this", "two columns would be called 'a'"),
        ("SELECT __ts FROM this", "no column is left"),
    ],
)
def test_columns_that_do_not_fit_are_refused(spark: SparkSession, statement: str, what: str) -> None:
    with pytest.raises(OperatorTypeError, match=what):
        compiled(spark, statement)


@pytest.mark.parametrize(
    "operation",
    [
        SelectSql("a", "this", "LIMIT 1"),
        SelectSql("DISTINCT a", "this", ""),
        SelectSql("a", "this", "ORDER BY a"),
        SelectSql("row_number() OVER (ORDER BY a) AS n", "this", ""),
        SelectSql("a", "this", "WHERE a IN (SELECT 1)"),
    ],
)
def test_what_is_not_row_by_row_is_refused_by_its_plan(spark: SparkSession, operation: SelectSql) -> None:
    with pytest.raises(OperatorTypeError, match="takes one message at a time"):
        compiled(spark, "SELECT a FROM this", operation)


def test_the_aggregates_are_those_of_spark(spark: SparkSession) -> None:
    registry = spark._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.expressions().iterator()
    found = set()
    while registry.hasNext():
        entry = registry.next()
        if entry._2()._1().getGroup() == "agg_funcs":
            found.add(entry._1())
    assert found == AGGREGATES


def test_groups_in_windows_are_those_of_the_operators_under_disorder(
    spark: SparkSession, tmp_path: Path
) -> None:
    harness = Harness(tmp_path)
    app = Application("both")
    stream = events(app, SHUFFLED, SCHEMA, disorder="4 s")
    of_sql = stream.sql(
        "SELECT window.start, key AS k, sum(n) / count(*) AS mean, tag FROM this "
        "LATERAL VIEW explode(tags) v AS tag WHERE n > 0 "
        "GROUP BY window(ts, '1 second'), key, tag HAVING max(n) > 2",
        name="hourly",
    )
    exploded = stream.filter("n > 0").with_columns(tag="explode(tags)")
    grouped = exploded.group_by("key", "tag").window(windows.tumbling("1 s"))
    by_hand = grouped.aggregate(mean=agg.sum("n") / agg.count(), most=agg.max("n"), step="by_hand")
    harness.sink(of_sql, "sql")
    harness.sink(by_hand.filter("most > 2").select("mean", "tag", start="window_start", k="key"), "hand")
    harness.run(app)
    wanted: dict[tuple[int, str, str], list[int]] = {}
    for ts, key, n, tags in ROWS:
        second = int(ts.timestamp() * 1000) // 1000 * 1000
        for tag in tags if n > 0 else ():
            wanted.setdefault((second, key, tag), []).append(n)
    model = {
        (at(second), key, tag, sum(ns) / len(ns)) for (second, key, tag), ns in wanted.items() if max(ns) > 2
    }
    assert model
    for name in ("sql", "hand"):
        rows = harness.rows(name)
        assert {(r["start"], r["k"], r["tag"], r["mean"]) for r in rows} == model
        assert len(rows) == len(model)
    assert list(harness.rows("sql")[0]) == ["start", "k", "mean", "tag"]
