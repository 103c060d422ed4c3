"""Spark's SQL as text."""

from __future__ import annotations

import doctest

from drivetrain.spark.session import spark_text


def test_the_examples_are_true() -> None:
    result = doctest.testmod(spark_text)
    assert result.attempted == 3
    assert result.failed == 0


def test_a_backslash_in_a_text_stays_one() -> None:
    assert spark_text.literal("a\\n") == r"'a\\n'"
