"""SQL over a stream as it is declared: the operators that it becomes, and what a stream cannot do."""

from __future__ import annotations

from typing import Any

import pytest

from drivetrain import Application, F, Stream, sinks, sources
from drivetrain.api.operations import Aggregate
from drivetrain.core.plan.planner import plan
from drivetrain.errors import GraphError


def sales() -> tuple[Application, Stream[Any]]:
    app = Application("sales")
    schema = "item string, price double, sold timestamp, tags array<string>"
    return app, app.read(sources.csv("in/", schema=schema, event_time="sold"), name="sales")


def operators(statement: str) -> list[str]:
    """What the processors of a statement do, in order."""
    app, stream = sales()
    stream.sql(statement).sink(sinks.none(), name="out")
    made = plan(app.graph())
    return [made.operators[id].text for id in made.graph.nodes if id not in ("sales", "out")]


def test_a_statement_without_groups_is_one_native_processor() -> None:
    app, stream = sales()
    stream.sql("select item, hour(timestamp()) as h from this -- all of them", name="hours").sink(
        sinks.none()
    )
    made = plan(app.graph())
    shown = made.operators["hours"]
    assert (shown.how, shown.text) == ("native", "SELECT item, hour(timestamp()) as h FROM this")
    assert len(made.fragments) == 1


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        (
            "SELECT item, count(*) AS n FROM this WHERE price > 0 GROUP BY item",
            ["price > 0", "n=count(*) by item in global"],
        ),
        (
            """SELECT window.start, upper(item) AS what, sum(price) / count(*) AS mean FROM this
               GROUP BY item, window(sold, '1 hour', '5 minutes') HAVING count(*) > 2""",
            [
                "mean_1=sum(price), mean_2=count(*) by item in sliding(1 h every 5 min)",
                "mean_2 > 2",
                "start, what, mean",
            ],
        ),
        (
            """SELECT tag, window_start, window_end, count(*) FILTER (WHERE price > 3) n
               FROM this LATERAL VIEW explode(tags) t AS tag
               GROUP BY tag, session_window(timestamp(), '1 minute')""",
            [
                "SELECT * FROM this LATERAL VIEW explode(tags) t AS tag",
                "n=count(*) FILTER (WHERE price > 3) by tag in session(gap 1 min)",
            ],
        ),
        (
            """SELECT item, WINDOW(sold, '1 hour').start AS window_start, count(*) AS n,
                      unix_seconds(window(sold,'1 hour').end) AS until
               FROM this GROUP BY item, window(sold, '1 hour')""",
            ["n=count(*) by item in tumbling(1 h)", "item, window_start, n, until"],
        ),
        (
            "SELECT hour(timestamp()) AS h, max(timestamp()) AS newest FROM this GROUP BY hour(timestamp())",
            ["newest=max(timestamp()) by h in global"],
        ),
        (
            """SELECT item LIKE ANY ('a%') AS short, any(price > 3) AS dear
               FROM this GROUP BY item LIKE ANY ('a%')""",
            ["dear=any(price > 3) by short in global"],
        ),
        (
            "SELECT max(price) AS dearest, date(sold) AS day FROM this GROUP BY date(sold)",
            ["dearest=max(price) by day in global", "dearest, day"],
        ),
    ],
)
def test_groups_become_the_operators_of_group_by(statement: str, wanted: list[str]) -> None:
    assert operators(statement) == wanted


def test_the_aggregation_has_the_name_and_one_that_needs_no_more_has_late_messages() -> None:
    app, stream = sales()
    hourly = stream.sql(
        "SELECT item, window_start, window_end, count(*) AS n FROM this GROUP BY item, window(sold, '1 h')",
        name="hourly",
    )
    hourly.sink(sinks.none())
    hourly.late.sink(sinks.none(), name="too_late")
    assert isinstance(app.graph().nodes["hourly"].operation, Aggregate)


def test_the_time_is_recognised_only_while_it_is_unchanged() -> None:
    _, stream = sales()
    statement = "SELECT count(*) AS n FROM this GROUP BY window(sold, '1 h')"
    assert stream.filter("price > 3").sample(0.5).sql(statement).id == "sql-select"
    with pytest.raises(GraphError, match="sold is not known to be the time"):
        stream.with_columns(sold=F.date_trunc("day", "sold")).sql(statement)


@pytest.mark.parametrize(
    ("statement", "what", "instead"),
    [
        ("SELECT count(*) AS n FROM this", "aggregates without GROUP BY", "GROUP BY window"),
        ("SELECT DISTINCT item FROM this", "SELECT DISTINCT", "deduplicate"),
        ("SELECT item FROM this ORDER BY item", "ORDER", "top"),
        ("SELECT item FROM this LIMIT 3", "LIMIT", "top"),
        ("SELECT a FROM this JOIN b ON a = b", "JOIN", "join"),
        ("SELECT a FROM this, b", "reads more than this", "join"),
        ("SELECT a FROM sales", "another table", "FROM this"),
        ("SELECT 1", "reads from nothing", "FROM this"),
        ("SELECT row_number() OVER (ORDER BY price) AS n FROM this", "OVER", "GROUP BY"),
        ("SELECT a FROM this WHERE a IN (SELECT b FROM c)", "query within", "join"),
        ("SELECT a FROM this UNION SELECT a FROM this", "UNION", "union"),
        ("WITH a AS (SELECT 1) SELECT * FROM a", "begin with SELECT", "SELECT"),
        ("SELECT a FROM this) + (SELECT 1", "closes what is not open", "one query"),
        (" ", "empty", "SELECT"),
        ("SELECT item, count(*) FROM this GROUP BY item", "without a name", "AS name"),
        ("SELECT item, count(DISTINCT price) AS n FROM this GROUP BY item", "DISTINCT", "distinct_count"),
        ("SELECT item FROM this GROUP BY item", "without an aggregate", "deduplicate"),
        ("SELECT *, count(*) AS n FROM this GROUP BY item", r"\* with GROUP BY", "each with a name"),
        ("SELECT count(*) AS n FROM this GROUP BY ROLLUP(item)", "ROLLUP", "each key"),
        ("SELECT item, count(*) AS n FROM this GROUP BY 1", "by its position", "expression"),
        ("SELECT date(sold) AS d, count(*) AS n FROM this GROUP BY d", "name of an expression", "date"),
        ("SELECT count(*) AS n FROM this GROUP BY count(*)", "aggregate as a key", "two statements"),
        (
            "SELECT count(*) AS n FROM this GROUP BY window(item, '1 h')",
            "time of the messages",
            r"timestamp\(\)",
        ),
        ("SELECT count(*) AS n FROM this GROUP BY window(sold, '1 h', '5 s', '2 s')", "lengths", "window"),
        ("SELECT count(*) AS n FROM this GROUP BY window(sold, price)", "lengths", "window"),
        (
            "SELECT window(sold, '1 d').start AS day, count(*) AS n FROM this GROUP BY window(sold, '1 h')",
            "a window that GROUP BY does not have",
            r"window\.start",
        ),
        (
            "SELECT item, hour(timestamp()) AS h, count(*) AS n FROM this GROUP BY item",
            "the time of a message beside groups",
            r"window\.start",
        ),
        (
            "SELECT item, session_window(sold, '1 h') AS s, count(*) AS n FROM this GROUP BY item",
            "a window that GROUP BY does not have",
            r"session_window\.start",
        ),
    ],
)
def test_what_a_stream_cannot_do_is_refused_with_the_operator_to_use(
    statement: str, what: str, instead: str
) -> None:
    _, stream = sales()
    with pytest.raises(GraphError, match=rf"(?s){what}.*remedy: use.*{instead}") as caught:
        stream.sql(statement)
    assert __file__.rsplit("/", 1)[-1] in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "mark"),
    [("SELECT item FRM this", "SELECT item FRM this\n                       ^"), ("SELECT (a FROM this", "")],
)
def test_text_that_spark_cannot_read_is_refused_with_its_place(statement: str, mark: str) -> None:
    _, stream = sales()
    with pytest.raises(GraphError, match="Spark cannot read") as caught:
        stream.sql(statement)
    assert mark in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT a IS NOT DISTINCT FROM b AS same FROM this",
        "SELECT * EXCEPT (price) FROM this",
        "SELECT window, limit, this.offset FROM this",
        "SELECT 'ORDER BY timestamp()' AS text FROM `this` t WHERE t.item LIKE '%JOIN%'",
        "SELECT item LIKE ANY ('a%', 'b%') AS short, item NOT ILIKE SOME ('c%') AS other FROM this",
        "SELECT extract(hour FROM sold) AS h, trim(both 'x' FROM item) AS t FROM this",
    ],
)
def test_words_of_clauses_may_be_names_and_parts_of_expressions(statement: str) -> None:
    assert len(operators(statement)) == 1


def test_two_columns_of_one_name_are_refused() -> None:
    _, stream = sales()
    with pytest.raises(GraphError, match="two columns are called 'n'"):
        stream.sql("SELECT item AS n, count(*) AS n FROM this GROUP BY item")
