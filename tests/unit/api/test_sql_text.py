"""SQL text is checked where it is written: what Spark can read passes, the rest is refused with its place."""

from __future__ import annotations

import re
import runpy
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain import Application, F, agg, expr, sources
from drivetrain.api.expressions.sql.check import fault_of
from drivetrain.api.operators.column_arguments import as_column
from drivetrain.api.stream import Stream
from drivetrain.errors import GraphError

ROOT = Path(__file__).parents[3]
JARS = Path(pyspark.__file__).parent / "jars"


def test_the_grammar_is_that_of_the_installed_pyspark() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "spark_grammar.py"), run_name="generator")
    assert made["GRAMMAR"].read_text() == made["grammar_file"]()


FUNCTION_KEYWORDS = ["like", "and", "between", "cast", "extract", "position", "overlay", "trim", "substring"]


def documented_queries() -> list[str]:
    """The examples with which Spark documents its functions, from the class files in its jars."""
    found = []
    for jar in ("spark-catalyst", "spark-sql_"):
        with zipfile.ZipFile(next(JARS.glob(f"{jar}*.jar"))) as classes:
            for name in classes.namelist():
                if "expressions/" in name and name.endswith(".class") and "$" not in name:
                    found += re.findall(
                        rb"^\s*> (SELECT .*?);\s*$", classes.read(name), re.MULTILINE | re.DOTALL
                    )
    return [query.decode() for query in found]


def test_every_example_of_sparks_documentation_passes() -> None:
    queries = documented_queries()
    assert len(queries) > 1000
    functions = ["some_function", "+", *FUNCTION_KEYWORDS]
    refused = [q for q in queries if all(fault_of(f"({q.replace('_FUNC_', f)})") for f in functions)]
    assert refused == []


@pytest.mark.parametrize(
    "text",
    [
        "*", "t.*", "* EXCEPT (a)", "n", "n AS m", "n m", "f(n) AS (a, b)", "value value", "end",
        "start + end", "case", "date + 1", "if(a, b, c)", "like(a, 'x')", "a.and", "a AS not", "n.`or`",
        "`größe` > 3", ".5", "1.", "1.e3", "1L", "1Y", "1.5BD", "2d", "1e-3", "a.1b", "1st + 2nd", "x'1F'",
        "r'a\\b'", "1.a",
        "'it''s'", "'it\\'s'", '"a" || \'b\'', "'a' 'b'", "`a``b`.c", "a\n\t+ b", "a\u00a0+ b",
        "a -- a comment", "/* a /* nested */ comment */ a", "a--1\n-1", "a <=> b", "a !> b", "!a", "~a",
        "a >>> 2",
        "a div 2", "a is not distinct from b", "a not between 1 and 2 and b", "a like any ('x', 'y')",
        "a not in (select x from t)", "exists (select 1)", "(a, b) in ((1, 2))", "case a when 1 then 2 end",
        "cast(a as decimal(10, 2))", "a::array<array<int>>", "cast(a as map<int, array<int>>) >= b",
        "cast(a as struct<x: int, y: map<string, array<int>>>)", "try_cast(a as struct<>)", "a > 1 >> 1",
        "interval 1 day 2 hours", "interval '1-2' year to month", "timestamp'2020-01-01'",
        "trim(both 'x' from a)",
        "extract(year from a)", "overlay(a placing b from 1)", "count(distinct a, b) filter (where a > 1)",
        "sum(a) over (partition by b order by c desc nulls last rows between 2 preceding and current row)",
        "first(a) ignore nulls", "percentile_cont(0.5) within group (order by a)",
        "transform(a, (x, i) -> x + i)",
        "f(a => 1)", "struct(a AS b, c d)", "a[0].b['x'][i + 1]", "a:b.c[0]", "a collate utf8_lcase", ":name",
        "not not a", "a = b = c", "null is null", "${delay} + 1",
    ],
)  # fmt: skip
def test_what_spark_can_read_passes(text: str) -> None:
    assert fault_of(text) is None


@pytest.mark.parametrize(
    ("marked", "what", "remedy"),
    [
        ("n = 1 and▲", "ends after 'and'", "in backquotes: `and`"),
        ("a +▲", "ends after '+'", "complete the text"),
        ("n is not▲", "ends after 'not'", "complete the text"),
        ("n not ▲> 1", "from '>' on", "write what is missing before '>'"),
        ("delay > ▲AND n", "from 'AND' on", "AND needs something on both sides"),
        ("a or ▲or b", "from 'or' on", "in backquotes: `or`"),
        ("a b ▲c", "from 'c' on", "put names with spaces in backquotes"),
        ("f(a ▲b)", "from 'b' on", "write an operator or a comma before it"),
        ("n > 10 ▲10", "from '10' on", "write an operator or a comma before it"),
        ("a > 1\nand b = ▲= 3\nand c", "from '=' on", "write what is missing before '='"),
        ("abs▲(n + (1)", "the ( is never closed", "add a )"),
        ("a▲[1", "the [ is never closed", "add a ]"),
        ("a = 1▲)", "from ')' on", "remove the )"),
        ("f(a, ▲)", "from ')' on", "write what is missing before it"),
        ("a▲, b", "from ',' on", "give each expression a text of its own"),
        ("n in ▲[1, 2]", "from '[' on", "x IN (1, 2)"),
        ("n▲;", "from ';' on", "one expression, not a statement"),
        ("a &▲& b", "from '&' on", "write AND"),
        ("a ** ▲2", "from '2' on", "write power(a, b)"),
        ("a /▲/ 2", "from '/' on", "write a div b"),
        ("a is ▲None", "from 'None' on", "write NULL"),
        ("▲case when a then b", "a CASE has no END", "add END"),
        ("a = ▲'x", "the quote ' is never closed", "add a '"),
        ('a = ▲"x', 'the quote " is never closed', 'add a "'),
        ("▲`a > 1", "the backquote ` is never closed", "add a `"),
        ("a ▲/* b", "a comment is never closed", "add */"),
        ("a ▲# b", "'#' has no meaning", "remove it"),
        ("▲größe > 3", "the name größe needs backquotes", "write `größe`"),
        ("length ▲'x'", "from \"'x'\" on", "write an operator"),
        ("▲", "SQL text is empty", "write the name of a column"),
        ("not▲", "ends after 'not'", "in backquotes: `not`"),
    ],
)  # fmt: skip
def test_what_spark_cannot_read_is_refused_with_its_place(marked: str, what: str, remedy: str) -> None:
    text = marked.replace("▲", "")
    fault = fault_of(text)
    assert fault is not None
    assert what in fault.what
    assert remedy.lower() in fault.remedy.lower()
    assert fault.at == marked.index("▲")


PIECES = [*"aé1 .,'\"`()[]<>=+-*/|&:$#;\\\n", "and ", "case ", "cast(", "/*", "--"]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_judged_and_a_fault_lies_inside_it(text: str) -> None:
    fault = fault_of(text)
    assert fault is None or 0 <= fault.at <= len(text)


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.filter("n >"),
        lambda s: s.select("n >"),
        lambda s: s.select(x="n >"),
        lambda s: s.with_columns(x="n >"),
        lambda s: s.group_by("n >"),
        lambda s: s.group_by(x="n >"),
        lambda s: s.event_time("n >"),
        lambda s: s.event_time("ts", partition="n >", partitions=2),
        lambda s: s.group_by("n").aggregate(x=agg.sum("n >")),
        lambda s: s.filter(F.expr("n >")),
        lambda s: s.filter(expr("n >") & s),
        lambda s: sources.generate(columns={"x": "n >"}),
    ],
)
def test_an_operator_refuses_it_where_it_is_written(build: Callable[[Stream[Any]], object]) -> None:
    stream = Application("text").read(sources.generate(rows=1, columns={"n": "id % 3"}))
    with pytest.raises(GraphError) as refused:
        build(stream)
    assert str(refused.value.where).startswith("test_sql_text.py:")
    assert str(refused.value).splitlines()[2:4] == ["  got: n >", "          ^"]


def test_a_long_text_is_shown_around_the_place() -> None:
    text = "\n".join(["a +", f"{'b + ' * 40}) {'+ c' * 40}", "d"])
    with pytest.raises(GraphError) as refused:
        expr(text)
    _, _, shown, mark, _ = str(refused.value).splitlines()
    assert len(shown) < 100
    assert shown[mark.index("^")] == ")"
    assert shown.startswith("  got: …")
    assert shown.endswith("…")


@pytest.mark.parametrize("word", ["true", "FALSE", "null"])
def test_true_false_and_null_are_sql_and_no_columns(word: str) -> None:
    assert as_column(word).op == "function:expr"
    assert as_column(f"{word}_").op == "function:col"
