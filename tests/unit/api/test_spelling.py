"""What is misspelt, or spelt as elsewhere, fails where it is written, and the error says what to write."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import drivetrain
from drivetrain import Application, F, agg, col, partitioners, sinks, sources, windows
from drivetrain.api.spelling import GROUPED_WORDS, STREAM_WORDS
from drivetrain.api.stream import Stream
from drivetrain.errors import GraphError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def rows() -> Stream[Any]:
    return Application("spelling").read(sources.generate(rows=1))


def test_the_generated_names_are_those_of_the_installed_pyspark() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "spark_names.py"), run_name="generator")
    api = ROOT / "src" / "drivetrain" / "api"
    assert (api / "spark_names.py").read_text() == made["names_module"]()
    assert (api / "spark_functions.pyi").read_text() == made["functions_stub"]()


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
    ours = STREAM_WORDS[word].split("(")[0]
    assert ours.startswith(("name=", "process", "log")) or hasattr(rows, ours)


@pytest.mark.parametrize("word", GROUPED_WORDS)
def test_a_grouped_stream_says_its_own_word_for_those_of_others(rows: Stream[Any], word: str) -> None:
    grouped = rows.group_by("id")
    with pytest.raises(AttributeError) as refused:
        getattr(grouped, word)
    assert GROUPED_WORDS[word] in str(refused.value)
    ours = GROUPED_WORDS[word].split("(")[0]
    assert hasattr(grouped, ours) or hasattr(rows, ours)


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
