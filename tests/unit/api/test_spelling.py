"""What is misspelt, or spelt as elsewhere, fails where it is written, and the error says what to write."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import drivetrain
from drivetrain import Application, F, Grouped, agg, col, partitioners, patterns, sinks, sources, windows
from drivetrain.api.foreign_operator_names import (
    AGGREGATION_WORDS,
    APPLICATION_WORDS,
    GROUPED_WORDS,
    PARTITIONER_WORDS,
    SINK_WORDS,
    SOURCE_WORDS,
    STREAM_WORDS,
    WINDOW_WORDS,
)
from drivetrain.api.stream import Stream
from drivetrain.errors import GraphError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def rows() -> Stream[Any]:
    return Application("spelling").read(sources.generate(rows=1))


def test_the_generated_names_are_those_of_the_installed_pyspark() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "spark_names.py"), run_name="generator")
    folder = ROOT / "src" / "drivetrain" / "api" / "expressions"
    assert (folder / "spark_names.py").read_text() == made["names_module"]()
    assert (folder / "spark_functions.pyi").read_text() == made["functions_stub"]()


def test_a_function_that_spark_does_not_have_is_refused_where_it_is_written() -> None:
    with pytest.raises(AttributeError, match="did you mean 'upper'"):
        F.uppper("n")  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="with_columns"):
        F.udf(lambda x: x)  # type: ignore[attr-defined]
    assert not hasattr(F, "whatever")
    assert "upper" in dir(F)


def test_a_column_has_the_methods_of_sparks_columns_and_no_other() -> None:
    column = col("n")
    assert str(column.isin(1, 2)) == "n.isin(1, 2)"
    assert not hasattr(column, "whatever")
    with pytest.raises(AttributeError, match="did you mean 'isNull'") as refused:
        column.isnull()
    assert "getField" in refused.value.__notes__[0]


@pytest.mark.parametrize("word", STREAM_WORDS)
def test_a_stream_says_its_own_word_for_those_of_others(rows: Stream[Any], word: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(rows, word)
    assert STREAM_WORDS[word] in str(refused.value)
    assert exist(STREAM_WORDS[word])


@pytest.mark.parametrize("word", GROUPED_WORDS)
def test_a_grouped_stream_says_its_own_word_for_those_of_others(rows: Stream[Any], word: str) -> None:
    grouped = rows.group_by("id")
    with pytest.raises(AttributeError) as refused:
        getattr(grouped, word)
    assert GROUPED_WORDS[word] in str(refused.value)
    assert exist(GROUPED_WORDS[word])


MODULES: dict[str, tuple[Any, Mapping[str, str]]] = {
    "windows": (windows, WINDOW_WORDS),
    "sources": (sources, SOURCE_WORDS),
    "sinks": (sinks, SINK_WORDS),
    "agg": (agg, AGGREGATION_WORDS),
    "partitioners": (partitioners, PARTITIONER_WORDS),
    "application": (Application("words"), APPLICATION_WORDS),
}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_its_own_words_for_those_of_others(module: str) -> None:
    place, words = MODULES[module]
    for word, ours in words.items():
        with pytest.raises(AttributeError, match=f"has no '{word}': write ") as refused:
            getattr(place, word)
        assert ours in str(refused.value)
        assert exist(ours, place), word


def exist(words: str, *places: Any) -> bool:
    """Whether all calls in a suggestion are of functions that there are."""
    known = {
        "agg": agg,
        "F": F,
        "drivetrain": drivetrain,
        "sinks": sinks,
        "windows": windows,
        "patterns": patterns,
    }
    known |= {"app": Application("words"), "sources": sources}
    words = re.sub(r"=['\"].*?['\"]\)", "=...)", words)  # SQL text has functions of its own
    calls = re.findall(r"(?:(\w+)\.)?(\w+)\(", words)
    assert calls or "=" in words or "." in words or "," in words
    for owner, name in calls:
        where = [known[owner]] if owner else [Stream, Grouped, drivetrain, *places]
        if not any(hasattr(place, name) for place in where) and name != "function":
            pytest.fail(f"there is no {owner}.{name}")
    return True


def test_a_table_is_only_joined(rows: Stream[Any]) -> None:
    table = rows._app.table(sources.items([(1,)], schema="id bigint"))
    with pytest.raises(AttributeError, match=r"Table has no 'filter'.*stream.join\(table"):
        table.filter("id > 1")  # type: ignore[attr-defined]


def test_a_stream_is_no_table_of_columns(rows: Stream[Any]) -> None:
    with pytest.raises(AttributeError) as refused:
        rows.id_of  # type: ignore[attr-defined]  # noqa: B018 - it raises
    assert refused.value.__notes__ == ["A column of a stream is written col('id_of')."]
    with pytest.raises(TypeError, match=r"write col\('n'\)"):
        rows["n"]  # type: ignore[index]
    with pytest.raises(TypeError, match="not iterable"):
        list(rows)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda s: s.filter(F.sum("id") > 1), "takes one at a time.*aggregate"),
        (lambda s: s.filter("sum(id) > 1"), "takes one at a time.*aggregate"),
        (lambda s: s.select(x=F.coalesce(F.count_distinct("id"), F.lit(0))), "takes one at a time"),
        (lambda s: s.with_columns(x=F.row_number()), "all messages of a group.*top"),
        (lambda s: s.with_columns(x="lag(id) OVER (ORDER BY ts)"), "all messages of a group.*top"),
        (lambda s: s.window(windows.tumbling("1 h")).top(1, by=col("id").desc()), "is an order.*-price"),
        (lambda s: s.group_by(F.window("ts", "1 hour")), "cannot be keys here.*windows.tumbling"),
        (lambda s: s.group_by(w="session_window(ts, '1 hour')"), "cannot be keys here.*windows.session"),
        (lambda s: s.group_by("id").aggregate(F.sum("id")), r"a name for each column.*aggregate\(total="),
        (lambda s: s.with_columns("x", col("id")), r"a name for each column.*with_columns\(total="),
        (lambda s: s.rename("a", "b"), r"a name for each column.*rename\(new="),
        (lambda s: s.select(), "select needs a column"),
        (lambda s: s.with_columns(), "with_columns needs a column"),
        (lambda s: s.event_time(3), "not a column"),
        (lambda s: s.union(3), "not a stream"),
        (lambda s: s.join_as_of(s.group_by("id"), on="id"), "not a stream"),
        (lambda s: s.join(s, on=col("id") == col("id"), within="1 h"), "not names of columns"),
        (lambda s: s.join(s, on="id", how="outer", within="1 h"), 'write "full"'),
        (lambda s: s.join(s, on="id", how="left_anti", within="1 h"), "IS NULL"),
        (lambda s: s.process(lambda message: message), r"use map\(function\)"),
        (lambda s: s.process(3), "not a Task"),
        (lambda s: s.log("all"), "whole number"),
        (lambda s: drivetrain.plan(s), "not an application"),
        (lambda s: drivetrain.run(s), "not an application"),
        (lambda s: drivetrain.start("app"), "not an application"),
    ],
)
def test_what_is_written_as_elsewhere_is_refused_where_it_is_written(
    rows: Stream[Any], write: Callable[[Any], object], words: str
) -> None:
    with pytest.raises(GraphError) as refused:
        write(rows)
    assert re.search(words, str(refused.value), re.DOTALL)
    assert "test_spelling.py" in str(refused.value)


def test_columns_that_only_look_like_aggregates_are_columns(rows: Stream[Any]) -> None:
    rows.select(a="id", b="cast(id AS string) LIKE ANY ('1%', '2%')", c="x.sum", d=col("count"))
    rows.filter("over > 1").select("max")
    rows.with_columns(x=F.transform("xs", lambda x: x + 1), y="aggregate(xs, 0, (a, b) -> a + b)")


def test_early_results_of_two_aggregations_of_one_stream_are_two_streams(rows: Stream[Any]) -> None:
    hourly = rows.window(windows.tumbling("1 h"))
    counts, sums = hourly.count(name="counts"), hourly.sum("id", name="sums")
    assert [counts.early.id, sums.early.id, counts.early.id] == ["counts-early", "sums-early", "counts-early"]


def test_a_misspelt_operator_names_the_nearest_one(rows: Stream[Any]) -> None:
    with pytest.raises(AttributeError, match="did you mean 'filter'"):
        rows.fliter("n > 1")  # type: ignore[attr-defined]
    assert not hasattr(rows, "whatever")


@pytest.mark.parametrize("window", ["1 h", 60_000, windows.tumbling])
def test_what_is_no_window_is_refused_with_the_windows_there_are(rows: Stream[Any], window: Any) -> None:
    for stream in (rows, rows.group_by("id")):
        with pytest.raises(GraphError) as refused:
            stream.window(window)
        assert "test_spelling.py" in str(refused.value)
        assert "windows.tumbling('1 h')" in str(refused.value)


def test_a_column_may_be_called_name(rows: Stream[Any]) -> None:
    app = rows._app
    ids = [
        rows.select(name="id", step="a").id,
        rows.with_columns(name="id", step="b").id,
        rows.group_by("id").aggregate(name=agg.first("id"), step="c").id,
    ]
    assert ids == ["a", "b", "c"]
    select, added, aggregate = (app._nodes[id].operation for id in ids)
    assert [name for name, _ in select.columns] == ["name"]
    assert [name for name, _ in added.columns] == ["name"]
    assert [name for name, _ in aggregate.aggregations] == ["name"]


@pytest.mark.parametrize("operator", ["sum", "min", "max", "mean"])
def test_several_columns_at_once_are_an_aggregate(rows: Stream[Any], operator: str) -> None:
    with pytest.raises(GraphError) as refused:
        getattr(rows.group_by("id"), operator)("n", "m")
    assert f"aggregate(n=agg.{operator}('n'), m=agg.{operator}('m'))" in str(refused.value)


def test_two_words_are_neither_a_column_nor_sql(rows: Stream[Any]) -> None:
    with pytest.raises(GraphError) as refused:
        rows.select("my col")
    assert "col('my col')" in str(refused.value)
    assert [str(c) for _, c in rows._app._nodes[rows.select("not id").id].operation.columns] == ["not id"]
    assert rows.select(col("my col")).id


@pytest.mark.parametrize("module", [drivetrain, agg, sources, sinks, windows, partitioners])
def test_what_a_module_exports_is_there_and_nothing_of_spark_is_imported_for_it(module: Any) -> None:
    assert all(hasattr(module, name) for name in module.__all__)
    code = "import sys, drivetrain; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
