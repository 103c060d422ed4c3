"""What a function receives follows from its parameter, never from the functions that share its stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.api.types import MessageType, message_type
from drivetrain.errors import OperatorError
from drivetrain.spark.compile.python_stage import PythonStage, Step, StepKind
from drivetrain.spark.session.spark_errors import EmbeddedError, recovered

TS_TYPE = pa.timestamp("us", "UTC")
NAMES = {2: ("key", "value"), 1: ("value",)}
ARROW = {
    2: pa.schema([("key", pa.string()), ("value", pa.int64())]),
    1: pa.schema([("value", pa.int64())]),
}


class Pair(NamedTuple):
    key: str
    value: int


@dataclass(frozen=True)
class Reversed:
    """The same columns in another order, and a method that rows do not have."""

    value: int
    key: str

    def doubled(self) -> int:
        return 2 * self.value


@dataclass(frozen=True)
class Single:
    value: int


TYPES: dict[str, tuple[MessageType, Callable[[str, int], Any]]] = {
    "text": (message_type("key string, value bigint"), lambda k, v: [k, v]),
    "tuple": (message_type(tuple[str, int]), lambda k, v: (k, v)),
    "named": (message_type(Pair), Pair),
    "data": (message_type(Reversed), lambda k, v: Reversed(v, k)),
    "bare": (message_type(int), lambda _k, v: v),
    "text of one": (message_type("value bigint"), lambda _k, v: (v,)),
    "data of one": (message_type(Single), lambda _k, v: Single(v)),
}
WANTS: dict[int, list[type | None]] = {2: [None, tuple, Pair, Reversed, Single], 1: [None, tuple, Single]}


class Drawn(NamedTuple):
    kind: StepKind
    returns: str
    wanted: int


steps_ = st.lists(
    st.builds(
        Drawn, st.sampled_from(["map", "filter", "flat_map"]), st.sampled_from(list(TYPES)), st.integers(0, 9)
    ),
    min_size=1,
    max_size=6,
)


def content(message: Any) -> tuple[str, int]:
    """Key and value, whatever the message is."""
    if isinstance(message, int):
        return "-", message
    if isinstance(message, tuple) and not hasattr(message, "value"):
        texts, numbers = [[v for v in message if isinstance(v, of)] for of in (str, int)]
        return (texts or ["-"])[0], numbers[0]
    return getattr(message, "key", "-"), message.value


def built(drawn: list[Drawn]) -> tuple[list[Step], list[list[str]]]:
    """The steps, and what each of them received."""
    steps: list[Step] = []
    received: list[list[str]] = []
    width = 2
    for i, one in enumerate(drawn):
        heard: list[str] = []
        received.append(heard)
        type_, make = TYPES[one.returns]
        wants = WANTS[width][one.wanted % len(WANTS[width])]

        def fn(message: Any, heard: list[str] = heard, one: Drawn = one, make: Any = make) -> Any:
            heard.append(f"{type(message).__name__} {message!r}")
            key, value = content(message)
            if one.kind == "filter":
                return value % 3 != one.wanted % 3
            made = make(key, value + 1)
            return made if one.kind == "map" else [made] * (value % 3)

        names = ("key", "value") if type_.ddl.startswith("key") else ()
        names = names or (("value", "key") if one.returns == "data" else ("value",))
        declared = message_type(bool) if one.kind == "filter" else type_
        steps.append(Step(one.kind, fn, f"step-{i}", declared, wants=wants, columns=names))
        if one.kind != "filter":
            width = len(names)
    return steps, received


def run(steps: list[Step], given_batch: pa.RecordBatch, timed: bool) -> pa.RecordBatch:
    came = tuple(n for n in given_batch.schema.names if not n.startswith("__"))
    typed = next((s for s in reversed(steps) if s.kind != "filter"), None)
    fields = [given_batch.schema.field(n) for n in came]
    if typed is not None:
        fields = [ARROW[len(typed.names)].field(n) for n in typed.names]
    (out,) = PythonStage(tuple(steps), came, pa.schema(fields), timed, bad=False)([given_batch])
    return out


@given(steps_, st.lists(st.integers(-9, 9), min_size=1, max_size=8), st.booleans())
def test_a_function_receives_in_a_chain_what_it_receives_alone(
    drawn: list[Drawn], values: list[int], timed: bool
) -> None:
    arrays = [pa.array([str(v) for v in values]), pa.array(values, pa.int64())]
    if timed:
        arrays.append(pa.array(range(len(values)), TS_TYPE))
    batch = pa.RecordBatch.from_arrays(arrays, names=["key", "value", *(["__ts"] if timed else [])])
    fused, in_chain = built(drawn)
    alone, in_turn = built(drawn)
    whole = run(fused, batch, timed)
    for one in alone:
        if batch.num_rows:
            batch = run([one], batch, timed)
    assert in_chain == in_turn
    if batch.num_rows:
        assert whole == batch


def test_a_result_that_the_next_function_cannot_read_is_an_error_of_the_one_that_returned_it() -> None:
    first = Step("map", lambda _m: ("a", 1, 2), "first (app.py:1)", message_type("key string, value bigint"),
                 columns=("key", "value"))  # fmt: skip
    second = Step("map", lambda m: m.value, "second (app.py:2)", message_type(int))
    with pytest.raises(EmbeddedError) as caught:
        run([first, second], pa.RecordBatch.from_arrays([pa.array([1])], names=["value"]), timed=False)
    error = recovered(str(caught.value))
    assert isinstance(error, OperatorError)
    assert error.operator == "first (app.py:1)"
    assert "('a', 1, 2) (tuple)" in error.what
