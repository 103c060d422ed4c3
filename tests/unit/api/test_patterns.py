"""Patterns as users write them: what is refused, and how one is described."""

from __future__ import annotations

from typing import Any

import pytest

from drivetrain import Application, Stream, patterns, sources, windows
from drivetrain.api.operations import MatchPattern
from drivetrain.errors import GraphError

A, B = patterns.step("a", "n = 1"), patterns.step("b", "n = 2")


def read() -> Stream[Any]:
    return Application("app").read(sources.items([("k", 1)], schema="key string, n bigint"))


def test_the_description_says_the_whole_pattern() -> None:
    def larger(message: Any, so_far: Any) -> bool:
        return bool(message.n > so_far.a.n)

    stream = read()
    stream.group_by("key").match(
        A,
        patterns.without("n = 3"),
        patterns.step("b", larger, at_least=2, directly=True),
        within="10 min",
        overlapping=True,
        name="found",
    )
    operation = stream._app._nodes["found"].operation
    assert isinstance(operation, MatchPattern)
    assert (
        operation.described == "a (n = 1), without (n = 3), directly at least 2 b (larger) "
        "within 10 min by key, overlapping"
    )
    assert operation.keeps_state
    assert operation.has_late_messages
    assert [function.fn for function in operation.functions] == [larger]


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([], "a pattern begins with a step"),
        ([patterns.without("n = 1"), A], "a pattern begins with a step"),
        ([A], "one step is not a pattern"),
        ([A, "n = 2"], "not a part of a pattern"),
        ([A, A], "two columns of a match have one name"),
        ([A, patterns.step("key", "n = 2")], "two columns of a match have one name"),
        ([A, patterns.step("match_end", "n = 2")], "two columns of a match have one name"),
        ([patterns.step(f"s{i}", "n = 1") for i in range(61)], "too many parts"),
    ],
)
def test_what_is_no_pattern_is_refused(parts: list[Any], problem: str) -> None:
    with pytest.raises(GraphError, match=problem) as raised:
        read().group_by("key").match(*parts, within="1 min")
    assert "test_patterns.py" in str(raised.value)


def test_a_pattern_has_a_time_and_no_window() -> None:
    with pytest.raises(GraphError, match="needs time"):
        read().group_by("key").match(A, B, within="0 s")
    with pytest.raises(GraphError, match="no window"):
        read().group_by("key").window(windows.tumbling("1 h")).match(A, B, within="1 h")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: patterns.step("1st", "n = 1"), "a step needs a name"),
        (lambda: patterns.step("_a", "n = 1"), "a step needs a name"),
        (lambda: patterns.step("a", "n = 1", at_least=0), "this number of messages"),
        (lambda: patterns.step("a", "n = 1", at_least=True), "this number of messages"),
        (lambda: patterns.step("a", lambda: True), "not a condition"),  # type: ignore[arg-type]
        (lambda: patterns.without(lambda a, b, c: True), "not a condition"),
        (lambda: patterns.step("a", "n = = 1"), "cannot read this SQL"),
    ],
)
def test_steps_that_cannot_be_are_refused(make: Any, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        make()
