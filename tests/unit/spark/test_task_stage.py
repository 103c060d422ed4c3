"""Stateless Tasks in a Spark partition: hooks, timestamps, what is refused; and who gets which message."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from drivetrain.api import partitioners
from drivetrain.api.graphs.task_operation import named_outputs
from drivetrain.api.operations import Process
from drivetrain.api.task import NamedOutput, Task, TaskContext, TimestampedValue
from drivetrain.api.types import message_type
from drivetrain.errors import OperatorError
from drivetrain.spark.compile.named_outputs import ResultColumns
from drivetrain.spark.compile.tasks import TaskStage, _Chooser, _Dealer
from drivetrain.spark.session.spark_errors import EmbeddedError, recovered
from nightly_run import examples

TS_TYPE = pa.timestamp("us", "UTC")
VALUES = StructType([StructField("value", StringType())])
REFUSALS = StructType([StructField("key", StringType()), StructField("value", LongType())])


def batch(values: list[str], *, timed: bool = True) -> pa.RecordBatch:
    """Messages whose timestamps are 1000 µs apart."""
    arrays, names = [pa.array(values, pa.string())], ["value"]
    if timed:
        arrays.append(pa.array([i * 1000 for i in range(len(values))], TS_TYPE))
        names.append("__ts")
    return pa.RecordBatch.from_arrays(arrays, names=names)


def stage(
    task: Any, *, clock_ms: int | None = None, last: bool = False, timed: bool = True, run_id: str = ""
) -> TaskStage:
    batched = hasattr(task, "on_batch")
    ways = (partitioners.shuffle(),)
    outputs = named_outputs(task) if isinstance(task, type) else ()
    operation = Process(task, "T", message_type(str), 1, ways, False, batched, outputs=outputs)
    columns = ResultColumns(
        operation.type,
        VALUES,
        tuple((name, type, REFUSALS) for name, type in operation.outputs),
    )
    run_id = run_id or uuid.uuid4().hex
    return TaskStage(operation, "t", "t (app.py:5)", ("value",), columns, timed, clock_ms, run_id, last, None)


def run(made: TaskStage, *batches: pa.RecordBatch) -> list[tuple[str, int]]:
    """(value, timestamp in µs) of all results."""
    return [
        row
        for out in made(batches)
        for row in zip(
            out.column("value").to_pylist(), out.column("__ts").cast(pa.int64()).to_pylist(), strict=True
        )
    ]


def run_of_outputs(made: TaskStage, *batches: pa.RecordBatch) -> list[tuple[Any, Any, int]]:
    """(value of the main output, result for the output `refused`, timestamp in µs) of all results."""
    found = [row for out in made(batches) for row in out.to_pylist()]
    zero = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return [
        (
            row["value"],
            row["__output"] and tuple(row["__output"]["refused"].values()),
            (row["__ts"] - zero) // dt.timedelta(microseconds=1),
        )
        for row in found
    ]


def failure(made: TaskStage, *batches: pa.RecordBatch) -> OperatorError:
    with pytest.raises(EmbeddedError) as caught:
        list(made(batches))
    error = recovered(str(caught.value))
    assert isinstance(error, OperatorError)
    return error


class Doubling(Task[str, str]):
    def on_next(self, message: str) -> Iterable[str]:
        yield message
        yield TimestampedValue(7, message + "!")  # type: ignore[misc]


class Telling(Task[str, str]):
    """Tells of every hook; keeps what it was told at its start."""

    def on_start(self, context: TaskContext) -> None:
        self.context = context

    def on_next(self, message: str) -> list[str] | None:
        return None if message == "quiet" else [f"next {message}"]

    def on_clock(self, clock_ms: int) -> Iterable[str]:
        yield f"watermark {clock_ms}"

    def on_stop(self) -> Iterable[str]:
        yield f"stop {self.context.index} of {self.context.parallelism} from {self.context.start_ms}"


def test_results_have_the_timestamp_of_their_message_or_the_one_they_ask_for() -> None:
    assert run(stage(Doubling), batch(["a", "b"])) == [("a", 0), ("a!", 7000), ("b", 1000), ("b!", 7000)]


def test_hooks_are_called_in_order_and_their_results_have_the_clocks_timestamp() -> None:
    made = stage(Telling, clock_ms=5, last=True)
    assert run(made, batch(["a", "quiet"])) == [
        ("next a", 0),
        ("watermark 5", 5000),
        ("stop 0 of 1 from 5", 5000),
    ]


def test_without_a_clock_there_is_no_watermark_and_without_an_end_no_stop() -> None:
    assert run(stage(Telling), batch(["a"])) == [("next a", 0)]


def test_a_task_without_messages_still_hears_of_the_clock() -> None:
    assert run(stage(Telling, clock_ms=9), batch([])) == [("watermark 9", 9000)]


def test_an_instance_lives_through_the_batches_of_a_run_and_ends_with_it() -> None:
    starts: list[str] = []

    class Counting(Task[str, str]):
        def on_start(self, context: TaskContext) -> None:
            starts.append(context.processor)

        def on_next(self, message: str) -> Iterable[str]:
            yield message

    run(stage(Counting, run_id="one"), batch(["a"]))
    run(stage(Counting, run_id="one", last=True), batch(["b"]))
    assert starts == ["t"]
    run(stage(Counting, run_id="one"), batch(["c"]))
    assert starts == ["t", "t"]


def test_messages_without_timestamps_give_results_without() -> None:
    (out,) = stage(Doubling, timed=False)([batch(["a"], timed=False)])
    assert out.schema.names == ["value"]
    assert out.column("value").to_pylist() == ["a", "a!"]


# -- what is refused --------------------------------------------------------------------------------


def changing(change: str) -> type[Task[str, str]]:
    class Changing(Task[str, str]):
        def on_start(self, context: TaskContext) -> None:
            self.total = 0.5
            self.seen: list[str] = []
            self.names: dict[str, int] = {}

        def on_next(self, message: str) -> Iterable[str]:
            match change:
                case "number":
                    self.total = self.total + 1.25
                case "list":
                    self.seen.append(message)
                case "dict":
                    self.names[message] = 1
                case "new":
                    self.another = message
                case "deleted":
                    self.__dict__.pop("total", None)
            yield message

    return Changing


@pytest.mark.parametrize("messages", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("change", ["number", "list", "dict", "new", "deleted"])
def test_an_attribute_that_changes_is_found_whatever_it_is_and_however_often(
    change: str, messages: int
) -> None:
    error = failure(stage(changing(change)), batch(["a", "b", "c", "d", "e", "f"][:messages]))
    assert "changed its attribute" in error.what
    assert "stateful = True in Changing" in error.what


def test_a_task_that_only_reads_its_attributes_is_not_refused() -> None:
    assert run(stage(changing("nothing")), batch(["a"])) == [("a", 0)]


class Failing(Task[str, str]):
    def __init__(self, at: str) -> None:
        self.at = at

    def _fail(self, at: str) -> None:
        if self.at == at:
            raise ValueError(f"in {at}")

    def on_start(self, context: TaskContext) -> None:
        self._fail("on_start")

    def on_next(self, message: str) -> Iterator[str]:
        yield message
        if message == "b":
            self._fail("on_next")

    def on_clock(self, clock_ms: int) -> Iterator[str]:
        self._fail("on_clock")
        yield from ()

    def on_stop(self) -> Iterator[str]:
        self._fail("on_stop")
        yield from ()


@pytest.mark.parametrize("hook", ["on_start", "on_clock", "on_stop"])
def test_an_error_of_a_hook_names_the_hook(hook: str) -> None:
    error = failure(stage(lambda: Failing(hook), clock_ms=5, last=True), batch(["a"]))
    assert error.operator == f"t (app.py:5), {hook}"
    assert error.what == f"ValueError: in {hook}"
    assert "in _fail" in error.user_traceback


def test_an_error_of_on_next_names_the_message() -> None:
    error = failure(stage(lambda: Failing("on_next")), batch(["a", "b", "c"]))
    assert (error.operator, error.message) == ("t (app.py:5)", "'b'")


def test_a_result_of_another_type_is_an_error_of_the_task() -> None:
    class Wrong(Task[str, str]):
        def on_next(self, message: str) -> Iterable[Any]:
            yield 7

    assert "expected column value to be string, got 7" in failure(stage(Wrong), batch(["a"])).what


# -- a batch at a time --------------------------------------------------------------------------------


def batched(result: Any) -> type[Task[Any, Any]]:
    class Batched(Task[Any, Any]):
        output = str

        def on_batch(self, given: pa.RecordBatch) -> Any:
            return result(given)

    return Batched


def upper(given: pa.RecordBatch) -> pa.RecordBatch:
    values = [v.upper() for v in given.column("value").to_pylist()]
    return pa.RecordBatch.from_arrays([given.column("__ts"), pa.array(values)], names=["__ts", "value"])


@pytest.mark.parametrize(
    "result",
    [lambda b: [upper(b)], lambda b: iter([upper(b)]), lambda b: [pa.Table.from_batches([upper(b)])], upper],
    ids=["list", "iterator", "table", "one batch"],
)
def test_a_batch_task_gives_batches_or_tables_with_columns_in_any_order(result: Any) -> None:
    assert run(stage(batched(result)), batch(["a", "b"])) == [("A", 0), ("B", 1000)]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (lambda b: [b.select(["value"])], "left out the column '__ts'"),
        (lambda _b: ["text"], "on_batch"),
        (lambda b: [b.set_column(0, "value", pa.array([b"\xff"] * b.num_rows))], "on_batch"),
        (lambda _b: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_batch_that_does_not_fit_is_an_error_of_the_task(result: Any, told: str) -> None:
    error = failure(stage(batched(result)), batch(["a"]))
    assert error.operator.startswith("t (app.py:5)")
    assert told in f"{error.operator} {error.what}"


def test_a_batch_task_may_give_nothing() -> None:
    assert run(stage(batched(lambda _b: None)), batch(["a"])) == []


# -- who gets which message ------------------------------------------------------------------------------


def dealt(dealer: _Dealer, sizes: list[int]) -> list[int]:
    made = dealer(batch(["x"] * n) for n in sizes)
    return [to for out in made for to in out.column("__to").to_pylist()]


@given(st.integers(1, 7), st.lists(st.integers(0, 15), max_size=5), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_dealing_gives_every_task_one_message_a_round_however_batches_fall(
    n: int, sizes: list[int], new_order: bool
) -> None:
    to = dealt(_Dealer(n, new_order), sizes)
    assert len(to) == sum(sizes)
    for start in range(0, len(to), n):
        part = to[start : start + n]
        assert len(set(part)) == len(part)
        assert set(part) <= set(range(n))
    counts = Counter(to)
    assert max(counts.values(), default=0) - min((counts[i] for i in range(n)), default=0) <= 1
    assert to == dealt(_Dealer(n, new_order), sizes), "a batch that runs again is dealt the same"


def test_a_new_order_is_drawn_every_round_only_if_asked_for() -> None:
    plain, shuffled = dealt(_Dealer(5, False), [50]), dealt(_Dealer(5, True), [50])
    assert len({tuple(plain[i : i + 5]) for i in range(0, 50, 5)}) == 1
    assert len({tuple(shuffled[i : i + 5]) for i in range(0, 50, 5)}) > 1


def chooser(choose: Any, n: int = 3) -> _Chooser:
    return _Chooser(partitioners.custom(choose), ("value",), n, "t (app.py:5)")


def test_a_custom_partitioner_chooses_by_message() -> None:
    (out,) = chooser(lambda m, n: len(m) % n)([batch(["", "a", "bb", "ccc"])])
    assert out.column("__to").to_pylist() == [0, 1, 2, 0]
    assert out.column("value").to_pylist() == ["", "a", "bb", "ccc"]


@pytest.mark.parametrize(
    ("choose", "told"),
    [
        (lambda _m, n: n, "from 0 to 2, got 3"),
        (lambda _m, _n: -1, "got -1"),
        (lambda _m, _n: "1", "got '1'"),
        (lambda _m, _n: None, "got None"),
        (lambda m, _n: {}[m], "KeyError"),
    ],
)
def test_a_partitioner_that_chooses_no_task_is_an_error_with_the_message(choose: Any, told: str) -> None:
    with pytest.raises(EmbeddedError) as caught:
        list(chooser(choose)([batch(["a"])]))
    error = recovered(str(caught.value))
    assert isinstance(error, OperatorError)
    assert told in error.what
    assert error.operator == "t (app.py:5), its partitioner"
    assert error.message == "'a'"


class Refusing(Task[str, str]):
    outputs = {"refused": tuple[str, int]}  # noqa: RUF012 - as users write it

    def on_next(self, message: str) -> Iterator[str | NamedOutput]:
        yield message if len(message) < 3 else NamedOutput("refused", (message, len(message)))

    def on_clock(self, clock_ms: int) -> Iterator[TimestampedValue[NamedOutput]]:
        yield TimestampedValue(3, NamedOutput("refused", ("clock", clock_ms)))


def test_results_for_a_named_output_are_beside_the_main_ones_with_their_timestamps() -> None:
    made = stage(Refusing, clock_ms=9)
    assert run_of_outputs(made, batch(["a", "long", "b"]), batch(["longer"])) == [
        ("a", None, 0),
        (None, ("long", 4), 1000),
        ("b", None, 2000),
        (None, ("longer", 6), 0),
        (None, ("clock", 9), 3000),
    ]


def test_a_task_with_named_outputs_may_use_none_of_them() -> None:
    assert run_of_outputs(stage(Refusing), batch(["a", "b"])) == [("a", None, 0), ("b", None, 1000)]


def test_a_batched_task_emits_batches_to_named_outputs() -> None:
    class Batched(Task[Any, Any]):
        output = str
        outputs = {"refused": tuple[str, int]}  # noqa: RUF012 - as users write it

        def on_batch(self, given: pa.RecordBatch) -> Iterator[Any]:
            yield given.slice(0, 1)
            sizes = pa.array([7] * (given.num_rows - 1), pa.int64())
            arrays = [sizes, given.column("value")[1:], given.column("__ts")[1:]]
            yield NamedOutput("refused", pa.RecordBatch.from_arrays(arrays, names=["value", "key", "__ts"]))

    made = stage(Batched)
    assert run_of_outputs(made, batch(["a", "b", "c"])) == [
        ("a", None, 0),
        (None, ("b", 7), 1000),
        (None, ("c", 7), 2000),
    ]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (NamedOutput("reused", "a"), r"no output 'reused': its class declares refused"),
        (NamedOutput("refused", "a"), r"expected tuple \(key string, value bigint\), got 'a'"),
        (NamedOutput("refused", ("a", "b")), r"column value to be int64, got 'b'"),
        (NamedOutput("refused", TimestampedValue(1, ("a", 1))), r"expected tuple"),
    ],
)
def test_a_result_that_does_not_fit_its_output_is_an_error_of_the_task(
    result: NamedOutput, message: str
) -> None:
    class Wrong(Refusing):
        def on_next(self, given: str) -> Iterator[Any]:
            yield given
            yield result

    error = failure(stage(Wrong), batch(["a"]))
    assert re.search(message, str(error)), str(error)
    assert "t (app.py:5)" in str(error.operator)


def test_a_task_without_named_outputs_cannot_emit_to_one() -> None:
    class Undeclared(Task[str, str]):
        def on_next(self, given: str) -> Iterator[Any]:
            yield NamedOutput("refused", given)

    assert "its class declares none" in str(failure(stage(Undeclared), batch(["a"])))
