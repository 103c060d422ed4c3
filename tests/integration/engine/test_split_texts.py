"""Texts are split at characters without regular expressions, into the parts of Spark's own `split`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import has_change
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from nightly_run import examples

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TEXTS = ["", " ", "a", ",a", "a,,b,", " a  b\t\n", "é, 漢;😀", "[a-b]", "a\\b|c.d+e&f^g$", "ab1_ 2", None]
NO_UTF_8 = [b"\xff a, b", b"a\xc3", b"a \xe6\xbc,b", b"\x80"]
LIMITS = (-1, 0, 1, 2, 3)
AT_CHARACTERS = (
    r"\s+", r"\s", ",", r"\|", r"\W+", r"\S+", r"\d", "a", "\t", r"\t", "[ ,;]+", r"[\s,]", "[^a-z]+",
    r"[\W1]+", "[a-z1-9]+", "[+.]", r"[\]\[\-]", "[$.]+", "_+",
)  # fmt: skip
OTHERS = (
    r"\W",
    "[^a-z]",
    ", ",
    "é",
    "[é,]",
    "a|b",
    ".",
    ".+",
    "z-",
    "&",
    "[a&&b]",
    "[,-]",
    r"\s*",
    "",
    r"\Qa",
    "a{2}",
)

piece = st.sampled_from([*"abz19_-^&[]+.,| \t", r"\s", r"\W", r"\d", r"\]", r"\\", "a-z", "é"])
pieces = st.lists(piece, min_size=1, max_size=3).map("".join)
expressions = st.one_of(pieces, pieces.map("[{}]".format), pieces.map("[^{}]+".format))


@pytest.fixture(scope="module")
def texts(spark: SparkSession) -> DataFrame:
    frame = spark.createDataFrame([(text,) for text in TEXTS], "text string")
    bytes_only = spark.createDataFrame([(bytearray(text),) for text in NO_UTF_8], "text binary")
    return frame.union(bytes_only.select(F.col("text").cast("string")))


def is_at_characters(frame: DataFrame) -> bool:
    return "SplitAtCharacters" in frame._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]


def in_a_column(expression: str) -> Column:
    """The expression as what is not known before there are rows."""
    return F.concat(F.lit(expression), F.when(F.length("text") < 0, "x").otherwise(""))


@pytest.mark.parametrize("expression", AT_CHARACTERS)
def test_the_parts_are_those_of_the_regular_expression(
    spark: SparkSession, texts: DataFrame, expression: str
) -> None:
    def split_by(how: str | Column) -> DataFrame:
        columns = {f"at {limit}": F.split("text", how, F.lit(limit)) for limit in LIMITS}
        # Python cannot read a text that is not UTF-8.
        return texts.select(*(F.transform(parts, F.hex).alias(name) for name, parts in columns.items()))

    fast, slow = split_by(expression), split_by(in_a_column(expression))
    assert is_at_characters(fast) == has_change(spark, "SplitAtCharacters")
    assert not is_at_characters(slow)
    assert [tuple(row) for row in fast.collect()] == [tuple(row) for row in slow.collect()]


@pytest.mark.parametrize("expression", OTHERS)
def test_other_expressions_stay_regular_expressions(texts: DataFrame, expression: str) -> None:
    assert not is_at_characters(texts.select(F.split("text", expression)))


@settings(max_examples=examples(60))
@given(expression=expressions, some=st.lists(st.text("ab1_ ,|-[]é漢\t", max_size=8), max_size=8))
def test_so_they_are_for_any_expression(spark: SparkSession, expression: str, some: list[str]) -> None:
    def found(of: str | Column) -> Any:
        try:
            rows = spark.createDataFrame([(text,) for text in some], "text string").select(
                F.split("text", of)
            )
            return [row[0] for row in rows.collect()]
        except (Py4JJavaError, PySparkException) as error:  # not a regular expression
            return type(error)

    assert found(expression) == found(in_a_column(expression))


def test_a_streams_texts_are_split_so_too(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines.txt").write_text("to be, or\nnot  to be\n\n")
    lines = spark.readStream.text(str(tmp_path / "in"))
    words = lines.select(F.explode(F.split("value", r"\W+")).alias("word")).where("word != ''")
    counts: dict[str, int] = {}
    writer = words.groupBy("word").count().writeStream.outputMode("complete")
    writer = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
    query = writer.foreachBatch(lambda df, _: counts.update(map(tuple, df.collect()))).start()
    query.awaitTermination(120)
    plan = query._jsq.explainInternal(False)
    assert ("SplitAtCharacters" in str(plan)) == has_change(spark, "SplitAtCharacters")
    assert counts == {"to": 2, "be": 2, "or": 1, "not": 1}
