"""Python functions of a graph: their types come from annotations, and errors name operator and line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from drivetrain.api import Application, Task, sources
from drivetrain.api.graphs.functions import function, name_of, parameters
from drivetrain.api.location import Location
from drivetrain.api.stream import Stream
from drivetrain.errors import GraphError, OperatorTypeError

HERE = Location("/home/me/app.py", 7)


@pytest.fixture
def lines() -> Stream[str]:
    return Application("app").read(sources.text("/in"))


def length(text: str) -> int:
    return len(text)


def words(text: str) -> Iterator[str]:
    yield from text.split()


def untyped(text):  # type: ignore[no-untyped-def]
    return text


def odd(text: str) -> complex:
    return 1j


def test_the_type_comes_from_the_annotation_or_from_returns_which_wins() -> None:
    assert function("map", HERE, length, None).type.ddl == "value bigint"
    assert function("map", HERE, length, str).type.ddl == "value string"
    assert function("map", HERE, lambda x: x, "a int, b string").type.ddl == "a int, b string"
    assert function("flat_map", HERE, words, None, element=True).type.ddl == "value string"
    assert function("flat_map", HERE, words, int, element=True).type.ddl == "value bigint"


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda s: s.map(lambda x: x), "a lambda, which cannot have annotations"),
        (lambda s: s.map(untyped), "the return type of untyped is unknown"),
        (lambda s: s.map(odd), "the return type of odd has no column type"),
        (lambda s: s.map(length, returns=[str]), "no column type"),
        (lambda s: s.flat_map(length), "length must return an iterable"),
        (lambda s: s.with_columns(n=untyped), "the return type of untyped is unknown"),
        (lambda s: s.group_by("value").reduce(lambda a, b: a), "a lambda"),
        (lambda s: s.group_by("value").fold(int, untyped), "untyped"),
    ],
)
def test_a_missing_or_wrong_type_names_the_operator_and_its_line(
    lines: Stream[str], build: Callable[[Stream[Any]], Any], told: str
) -> None:
    with pytest.raises(OperatorTypeError) as caught:
        build(lines)
    assert told in str(caught.value)
    assert caught.value.where is not None
    operator, place = caught.value.where.rstrip(")").split(" (")
    assert operator in ("map", "flat_map", "with_columns", "reduce", "fold")
    assert place == f"test_functions_typed.py:{build.__code__.co_firstlineno}"


@pytest.mark.parametrize("what", [7, "upper", None, ["f"]])
def test_what_is_no_function_is_refused_by_name(lines: Stream[str], what: Any) -> None:
    with pytest.raises(GraphError, match=r"map .*not a function"):
        lines.map(what, returns=str)
    with pytest.raises(GraphError, match="not a function"):
        lines.flat_map(what)


def test_an_unknown_error_policy_is_refused_with_those_that_are(lines: Stream[str]) -> None:
    with pytest.raises(GraphError, match="unknown error policy") as caught:
        lines.map(length, on_error="ignore")  # type: ignore[arg-type]
    assert caught.value.expected == "fail or dead_letter"
    assert caught.value.got == "'ignore'"


def test_what_a_task_may_also_not_return_does_not_hide_what_it_does(lines: Stream[str]) -> None:
    class Echo(Task[str, str]):
        def on_next(self, message: str) -> list[str] | None:
            return [message]

    assert lines._app._nodes[lines.process(Echo).id].operation.type.ddl == "value string"  # type: ignore[union-attr]


def test_names_and_parameters_are_those_of_the_user() -> None:
    assert [name_of(f) for f in (length, lambda x: x, str.upper, partial(length))] == [
        "length",
        "lambda",
        "upper",
        "partial",
    ]
    assert parameters(length) == ("text",)
    assert parameters(lambda a, /, b, *c, d=1, **e: a) == ("a", "b")
    assert parameters(type("Odd", (), {"__signature__": "not a signature", "__call__": length})()) == ()


def test_the_line_is_that_of_the_call_and_not_one_of_ours(lines: Stream[str]) -> None:
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    stream = lines.map(length)
    where = lines._app._nodes[stream.id].where
    assert (where.line, where.file) == (line, __file__)
    assert str(HERE) == "app.py:7"
