"""The fused Arrow stage, against plain loops: results, timestamps, culprits, dead letters."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.api.operations import AsyncCalls
from drivetrain.api.types import MessageType, message_type
from drivetrain.errors import OperatorError
from drivetrain.spark.compile.python_stage import (
    BAD,
    PythonStage,
    Step,
    StepKind,
    operator_error,
    reporting,
    user_traceback,
)
from drivetrain.spark.session.spark_errors import EmbeddedError, recovered
from nightly_run import examples

TS_TYPE = pa.timestamp("us", "UTC")
INT, STR, PAIR = message_type(int), message_type(str), message_type(tuple[int, int])


class Reading(NamedTuple):
    room: str
    degrees: int


@dataclass(frozen=True)
class Alarm:
    room: str
    degrees: int


def step(kind: StepKind, fn: Callable[[Any], Any], type: MessageType = INT, **more: Any) -> Step:
    return Step(kind, fn, more.pop("operator", f"{kind} (app.py:1)"), type, **more)


def batch(values: list[Any], *, timed: bool = True, type: pa.DataType | None = None) -> pa.RecordBatch:
    """A batch of one column whose timestamps are the row numbers."""
    arrays, names = [pa.array(values, type or pa.int64())], ["value"]
    if timed:
        arrays.append(pa.array(range(len(values)), TS_TYPE))
        names.append("__ts")
    return pa.RecordBatch.from_arrays(arrays, names=names)


def stage(*steps: Step, timed: bool = True, columns: tuple[str, ...] = ("value",)) -> PythonStage:
    typed = next((s for s in reversed(steps) if s.kind != "filter"), None)
    arrow = {"bigint": pa.int64(), "string": pa.string()}
    fields = INT.fields if typed is None else typed.type.fields
    schema = pa.schema([(name, arrow[ddl]) for name, ddl in fields])
    return PythonStage(steps, columns, schema, timed, any(s.dead_letter for s in steps))


def run(made: PythonStage, *batches: pa.RecordBatch) -> list[tuple[Any, int]]:
    """(value, row it came from) of every good result."""
    return [
        (value, ts)
        for out in made(batches)
        for value, ts, bad in zip(
            out.column("value").to_pylist(),
            out.column("__ts").cast(pa.int64()).to_pylist(),
            out.column(BAD).to_pylist() if made.bad else itertools.repeat(None),
            strict=False,
        )
        if bad is None
    ]


def failure(made: PythonStage, given_batch: pa.RecordBatch) -> OperatorError:
    with pytest.raises(EmbeddedError) as caught:
        list(made([given_batch]))
    error = recovered(str(caught.value))
    assert isinstance(error, OperatorError)
    return error


# -- any chain over any batches, against plain loops -----------------------------------------------------


class Drawn(NamedTuple):
    """A drawn step: its kind, what it does to a number, and which numbers it fails on."""

    kind: StepKind
    n: int
    fails_on: int | None
    dead_letter: bool


def fn_of(drawn: Drawn, calls: list[Any] | None = None) -> Callable[[int], Any]:
    def fn(x: int) -> Any:
        if calls is not None:
            calls.append(x)
        if drawn.fails_on is not None and x % 5 == drawn.fails_on:
            raise ValueError(f"cannot take {x}")
        if drawn.kind == "map":
            return x * 3 + drawn.n
        if drawn.kind == "filter":
            return x % (drawn.n + 2) != 0
        return None if x % 4 == 3 and drawn.n == 0 else range(x, x + x % 3)

    return fn


def drawn_steps(*, failing: bool) -> st.SearchStrategy[list[Drawn]]:
    fails = st.sampled_from([None, None, 0, 1, 2]) if failing else st.none()
    kinds: st.SearchStrategy[StepKind] = st.sampled_from(["map", "filter", "flat_map"])
    return st.lists(st.builds(Drawn, kinds, st.integers(0, 3), fails, st.booleans()), min_size=1, max_size=5)


batches_ = st.lists(st.lists(st.integers(-50, 50), max_size=12), max_size=4)


def naive(drawn: list[Drawn], values: list[int]) -> tuple[list[tuple[int, int]], list[tuple[str, str, int]]]:
    """One message after the other through all steps; letters are (message, operator, row)."""
    good: list[tuple[int, int]] = []
    letters: list[tuple[str, str, int]] = []

    def push(i: int, x: int, row: int) -> None:
        if i == len(drawn):
            good.append((x, row))
            return
        try:
            made = fn_of(drawn[i])(x)
            if drawn[i].kind == "flat_map":
                made = list(made or ())
        except ValueError:
            letters.append((repr(x), f"step-{i}", row))
            return
        if drawn[i].kind == "map":
            push(i + 1, made, row)
        elif drawn[i].kind == "flat_map":
            for m in made:
                push(i + 1, m, row)
        elif made:
            push(i + 1, x, row)

    for row, value in enumerate(values):
        push(0, value, row)
    return good, letters


def steps_of(drawn: list[Drawn], calls: dict[int, list[Any]] | None = None) -> list[Step]:
    return [
        step(d.kind, fn_of(d, calls.setdefault(i, []) if calls is not None else None), operator=f"step-{i}",
             dead_letter=d.dead_letter)
        for i, d in enumerate(drawn)
    ]  # fmt: skip


@given(drawn_steps(failing=False), batches_)
@settings(max_examples=examples(150), deadline=None)
def test_a_chain_gives_what_plain_loops_give_and_timestamps_follow_messages(
    drawn: list[Drawn], batches: list[list[int]]
) -> None:
    expected = [r for values in batches for r in naive(drawn, values)[0]]
    assert run(stage(*steps_of(drawn)), *map(batch, batches)) == expected


@given(drawn_steps(failing=False), batches_)
@settings(max_examples=examples(50), deadline=None)
def test_messages_without_timestamps_take_the_same_way(drawn: list[Drawn], batches: list[list[int]]) -> None:
    made = stage(*steps_of(drawn), timed=False)
    out = [v for b in made(batch(v, timed=False) for v in batches) for v in b.column("value").to_pylist()]
    assert out == [value for values in batches for value, _ in naive(drawn, values)[0]]


@given(drawn_steps(failing=True), batches_)
@settings(max_examples=examples(200), deadline=None)
def test_every_message_is_in_the_output_or_a_dead_letter_with_its_timestamp(
    drawn: list[Drawn], batches: list[list[int]]
) -> None:
    drawn = [d._replace(dead_letter=True) for d in drawn]
    calls: dict[int, list[Any]] = {}
    made = stage(*steps_of(drawn, calls))
    for values in batches:
        calls.clear()
        good, letters = naive(drawn, values)
        for out in made([batch(values)]):
            bads = [
                (bad["raw"], bad["file"], ts)
                for bad, ts in zip(
                    out.column(BAD).to_pylist(), out.column("__ts").cast(pa.int64()).to_pylist(), strict=True
                )
                if bad is not None
            ]
            assert sorted(bads) == sorted(letters)
            assert all(out.column("value").to_pylist()[-len(bads) + i] is None for i in range(len(bads)))
        assert run(made, batch(values)) == good


@given(drawn_steps(failing=True), st.lists(st.integers(-50, 50), min_size=1, max_size=12))
@settings(max_examples=examples(200), deadline=None)
def test_a_failure_names_a_message_that_fails_and_no_function_runs_twice_on_one(
    drawn: list[Drawn], values: list[int]
) -> None:
    drawn = [d._replace(dead_letter=False) for d in drawn]
    good, letters = naive(drawn, values)
    calls: dict[int, list[Any]] = {}
    made = stage(*steps_of(drawn, calls))
    try:
        assert run(made, batch(values)) == good
        assert not letters
    except EmbeddedError as error:
        told = recovered(str(error))
        assert isinstance(told, OperatorError)
        failing = int(told.operator.removeprefix("step-"))
        assert told.message is not None
        assert (told.message, told.operator) in {(raw, operator) for raw, operator, _ in letters}
        # The first message that fails there is named, it was the last call, and nothing ran behind it.
        assert told.message == next(raw for raw, operator, _ in letters if operator == told.operator)
        assert repr(calls[failing][-1]) == told.message
        assert all(not calls.get(i) for i in range(failing + 1, len(drawn)))
        assert f"cannot take {told.message}" in told.user_traceback


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.sets(st.integers(0, 20)))
@settings(max_examples=examples(50), deadline=None)
def test_each_message_is_given_to_a_failing_function_once(values: list[int], bad: set[int]) -> None:
    calls: list[int] = []

    def fn(x: int) -> int:
        calls.append(x)
        if x in bad:
            raise ValueError
        return x

    run(stage(step("map", fn, dead_letter=True)), batch(values))
    assert calls == values


# -- one by one -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["map", "filter"])
def test_a_function_that_raises_stop_iteration_fails_like_any_other_and_loses_nothing(kind: StepKind) -> None:
    """`StopIteration` ends loops silently: a message that raises it must not swallow those behind it."""

    def fn(x: int) -> int:
        if x == 2:
            next(iter(()))
        return x

    error = failure(stage(step(kind, fn)), batch([1, 2, 3]))
    assert error.message == "2"
    assert "StopIteration" in error.what
    made = stage(step(kind, fn, dead_letter=True))
    assert run(made, batch([1, 2, 3, 2, 2, 4])) == [(1, 0), (3, 2), (4, 5)]


def test_a_flat_map_that_fails_half_way_emits_nothing_of_the_message() -> None:
    def fn(x: int) -> Iterator[int]:
        yield x
        if x == 2:
            raise ValueError(x)
        yield x

    made = stage(step("flat_map", fn, dead_letter=True))
    assert run(made, batch([1, 2, 3])) == [(1, 0), (1, 0), (3, 2), (3, 2)]


def test_a_stage_of_filters_only_hands_rows_on_as_they_came() -> None:
    both = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, 3]), pa.array(["a", None, "c"]), pa.array([7, 8, 9], TS_TYPE)], ["n", "s", "__ts"]
    )
    made = PythonStage(
        (step("filter", lambda row: row.n != 2),),
        ("n", "s"),
        pa.schema([("n", pa.int64()), ("s", pa.string())]),
        timed=True,
        bad=False,
    )
    (out,) = made([both])
    assert out.to_pydict()["s"] == ["a", "c"]
    assert out.column("__ts").cast(pa.int64()).to_pylist() == [7, 9]


def test_an_empty_batch_is_no_batch_and_one_that_is_filtered_whole_is_an_empty_one() -> None:
    made = stage(step("filter", lambda _x: False), step("map", lambda x: x))
    assert [b.num_rows for b in made([batch([]), batch([1, 2])])] == [0]


def test_two_batches_do_not_share_dead_letters() -> None:
    made = stage(step("map", lambda x: 1 // x, dead_letter=True))
    first, second = made([batch([0]), batch([1])])
    assert first.column(BAD).to_pylist()[0]["raw"] == "0"
    assert second.column(BAD).to_pylist() == [None]


def test_the_first_function_gets_the_class_of_message_it_wants() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(["attic", "hall"]), pa.array([40, 20])], ["room", "degrees"])
    schema = pa.schema([("value", pa.string())])
    for wants, told in ((Reading, "Reading"), (Alarm, "Alarm"), (None, "Row"), (tuple, "tuple")):
        one = step("map", lambda m: type(m).__name__, STR, wants=wants)
        (out,) = PythonStage((one,), ("room", "degrees"), schema, timed=False, bad=False)([rows])
        assert out.column("value").to_pylist() == [told, told]


def test_a_result_of_another_type_is_an_error_of_its_operator() -> None:
    error = failure(
        stage(step("map", lambda x: "many" if x == 2 else x, operator="map (app.py:7)")), batch([1, 2])
    )
    assert error.operator == "map (app.py:7)"
    assert "'many' (str)" in error.what
    assert error.message == "'many'"


def test_an_error_of_the_user_tells_their_frames_and_not_ours() -> None:
    def reading_of(x: int) -> int:
        return {}["missing"]  # type: ignore[no-any-return]

    error = failure(stage(step("map", reading_of)), batch([1]))
    assert error.what == "KeyError: 'missing'"
    assert "in reading_of" in error.user_traceback
    assert "drivetrain/spark" not in error.user_traceback
    assert error.user_traceback.endswith("KeyError: 'missing'")


def test_a_builtin_that_fails_has_no_frames_and_still_a_story() -> None:
    error = failure(stage(step("map", int)), batch(["x"], type=pa.string()))
    assert error.user_traceback.startswith("ValueError: invalid literal")


class UnprintableError(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_a_message_or_error_that_cannot_be_printed_is_reported_all_the_same() -> None:
    def fn(x: Any) -> Any:
        raise UnprintableError

    error = failure(stage(step("map", lambda _x: UnprintableError()), step("map", fn)), batch([1]))
    assert error.message is not None
    assert "UnprintableError" in error.message
    assert "UnprintableError" in error.what


def test_a_reported_function_names_its_arguments() -> None:
    def ratio(a: int, b: int) -> float:
        return a / b

    wrapped = reporting(ratio, "select (app.py:3)")
    assert wrapped(4, 2) == 2
    with pytest.raises(EmbeddedError) as caught:
        wrapped(1, 0)
    error = recovered(str(caught.value))
    assert isinstance(error, OperatorError)
    assert (error.operator, error.message) == ("select (app.py:3)", "(1, 0)")


def test_an_error_that_is_ours_already_is_not_wrapped_again() -> None:
    inner = operator_error("inner", 1, ValueError("x"))
    assert operator_error("outer", 2, inner) is inner


def test_an_error_without_frames_is_its_last_line() -> None:
    assert user_traceback(ValueError("plain")) == "ValueError: plain"


def test_an_asynchronous_step_keeps_order_timestamps_and_dead_letters() -> None:
    async def halved(n: int) -> int:
        await asyncio.sleep(0.001 * (5 - n))
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n // 2

    calls = AsyncCalls(concurrency=3, timeout_ms=1_000, retries=1, backoff_ms=1)
    made = stage(
        step("filter", lambda n: n != 2), step("map", halved, dead_letter=True, calls=calls), timed=True
    )
    (result,) = made([batch([0, 1, 2, 3, 4])])
    rows = result.to_pylist()
    assert [(row["value"], row["__ts"].microsecond) for row in rows if row[BAD] is None] == [(0, 0), (2, 4)]
    letters = [(row[BAD]["raw"], row["__ts"].microsecond) for row in rows if row[BAD] is not None]
    assert letters == [("1", 1), ("3", 3)]
    failing = stage(step("map", halved, calls=calls))
    with pytest.raises(EmbeddedError) as raised:
        list(failing([batch([0, 2, 3])]))
    error = recovered(str(raised.value))
    assert isinstance(error, OperatorError)
    assert "3 is odd" in str(error)
