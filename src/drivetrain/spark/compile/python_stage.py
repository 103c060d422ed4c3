"""Consecutive Python functions as one Arrow function: one trip to Python, not one per operator.

The stage takes Arrow batches, turns the columns into messages once, runs every step over the whole
batch with C-speed loops, and builds Arrow columns once at the end. A message's timestamp is tracked
by a row index, so filters and flat maps need not touch it. Each function gets the same input as
if it were alone (see `batch_messages`).

When a function raises, the length of the list of results is the position of the message that caused it, so no
function runs twice. Under `fail` the error leaves Spark as an
`OperatorError` (see `failures`); under `dead_letter` the message goes to the column `__bad` with its
traceback, and processing continues with the others.

Invariants:

1. Every input message leaves as its functions' result, or in `__bad`, or raises.
2. Output columns have the declared types; a value that does not fit is an error of its operator.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Literal

import pyarrow as pa

from drivetrain.api.operations import AsyncCalls
from drivetrain.api.types import MessageType
from drivetrain.config.references import scrub
from drivetrain.errors import OperatorError
from drivetrain.runtime.channel.columns import BAD, PART, TS
from drivetrain.spark.compile.arrow_messages import columns_of, message_text
from drivetrain.spark.compile.async_calls import FailedCall, call_all
from drivetrain.spark.compile.batch_messages import BatchMessages
from drivetrain.spark.session.spark_errors import EmbeddedError, embedded

_BAD_ARROW = pa.struct(
    [("raw", pa.string()), ("file", pa.string()), ("line", pa.int64()), ("error", pa.string())]
)
StepKind = Literal["map", "flat_map", "filter"]


@dataclass(frozen=True)
class Step:
    """One function of the stage: its kind, its operator, its type, and the class that it takes.

    `wants` is the class of message that it takes: None for a row, or the bare value of a single column.
    `columns` are those of a type that was declared as text. `calls` states how an asynchronous function is
    called, of the kind "map".
    """

    kind: StepKind
    fn: Callable[[Any], Any]
    operator: str
    type: MessageType
    dead_letter: bool = False
    wants: builtins.type | None = None
    columns: tuple[str, ...] = ()
    calls: AsyncCalls | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of its results."""
        return self.columns or tuple(name for name, _ in self.type.fields)


@dataclass
class PythonStage:
    """Steps over one input; an instance is pickled to Spark's workers and called once per task.

    `columns` are the data columns of the input in order. `schema` is the Arrow schema of the output's data
    columns. With `timed`, `__ts` is in the input and the output; with `parted`, `__part` is. `bad` adds the
    column `__bad`.
    """

    steps: tuple[Step, ...]
    columns: tuple[str, ...]
    schema: pa.Schema
    timed: bool
    bad: bool
    parted: bool = False
    _letters: list[tuple[str, str, str]] = field(default_factory=list)
    _bad_rows: list[int] = field(default_factory=list)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the steps over every batch."""
        for batch in batches:
            if batch.num_rows:
                yield self._run(batch)

    @property
    def _typed(self) -> Step | None:
        """The last step that makes new messages; without one, rows leave unchanged."""
        return next((s for s in reversed(self.steps) if s.kind != "filter"), None)

    @property
    def _needs_rows(self) -> bool:
        """Whether the row of each message is needed.

        For its timestamp, its dead letter, after filters only, or to make another form of filtered messages.
        """
        first = next((i for i, s in enumerate(self.steps) if s.kind != "filter"), len(self.steps) - 1)
        forms = {step.wants for step in self.steps[: first + 1]}
        return self.timed or self.parted or self.bad or self._typed is None or len(forms) > 1

    @property
    def _carried(self) -> list[str]:
        """Drivetrain's own columns that leave with the message from the same row."""
        return [*([TS] if self.timed else []), *([PART] if self.parted else [])]

    def _run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._letters, self._bad_rows = [], []
        held, needs_rows = BatchMessages(batch, self.columns), self._needs_rows
        for step in self.steps:
            if step.kind == "flat_map":
                self._flat_map(step, held, needs_rows=needs_rows)
            else:
                self._one_for_one(step, held, needs_rows=needs_rows)
        typed = self._typed
        kept = None if held.rows is None and not self._letters else pa.array(held.all_rows(), pa.int64())
        if typed is None:
            arrays = [_taken(batch, name, kept) for name in self.schema.names]
        else:
            arrays = columns_of(held.returned, typed.type, self.schema, typed.operator)
        arrays += [_taken(batch, name, kept) for name in self._carried]
        return self._with_letters(batch, arrays, held.count)

    def _one_for_one(self, step: Step, held: BatchMessages, *, needs_rows: bool) -> None:
        results, failed = self._results(step, held.as_wanted(step.wants))
        if failed:
            alive = [True] * held.count
            for i in failed:
                alive[i] = False
            at = held.all_rows()
            self._bad_rows += [at[i] for i in failed]
            held.keep(alive, rows=True)
        if step.kind == "map":
            held.replace(results, step.type, step.names, step.operator, held.rows)
        elif not all(results):
            held.keep(results, rows=needs_rows)

    def _results(self, step: Step, messages: list[Any]) -> tuple[list[Any], list[int]]:
        """The function's result for each message, and the positions of those it failed on."""
        if step.calls is not None:
            return self._async_results(step, step.calls, messages)
        results: list[Any] = []
        failed: list[int] = []
        remaining = iter(messages)
        while True:
            try:
                # extend() keeps the results before an error: their number is the failed message's position.
                results.extend(map(step.fn, remaining))
            except Exception as error:  # noqa: BLE001 - any error of the user's function is reported as theirs
                at = len(results) + len(failed)
                self._fail(step, messages[at], error)
                failed.append(at)
            else:
                at = len(results) + len(failed)
                if at == len(messages):
                    return results, failed
                # extend() takes the function's StopIteration for the end of the messages.
                self._fail(step, messages[at], StopIteration("raised by the function"))
                failed.append(at)

    def _async_results(
        self, step: Step, calls: AsyncCalls, messages: list[Any]
    ) -> tuple[list[Any], list[int]]:
        outcomes = call_all(step.fn, messages, calls, stops=not step.dead_letter)
        results: list[Any] = []
        failed: list[int] = []
        for at, outcome in sorted(outcomes.items()):
            if isinstance(outcome, FailedCall):
                self._fail(step, messages[at], outcome.error)
                failed.append(at)
            else:
                results.append(outcome)
        return results, failed

    def _flat_map(self, step: Step, held: BatchMessages, *, needs_rows: bool) -> None:
        messages = held.as_wanted(step.wants)
        if needs_rows:
            made, rows = self._made_with_rows(step, messages, held.all_rows())
            held.replace(made, step.type, step.names, step.operator, rows)
        else:
            held.replace(self._all_made(step, messages), step.type, step.names, step.operator, None)

    def _all_made(self, step: Step, messages: list[Any]) -> list[Any]:
        """The results of a flat map for all messages, if a failure ends the stage and rows are not needed."""
        out: list[Any] = []
        fn, message = step.fn, None
        try:
            for message in messages:
                made = fn(message)
                if made is not None:
                    out.extend(made)
        except Exception as error:  # noqa: BLE001 - any error of the user's function is reported as theirs
            self._fail(step, message, error)
        return out

    def _made_with_rows(
        self, step: Step, messages: list[Any], row_of: list[int]
    ) -> tuple[list[Any], list[int]]:
        out: list[Any] = []
        at: list[int] = []
        fn = step.fn
        for row, message in zip(row_of, messages, strict=True):
            before = len(out)
            try:
                made = fn(message)
                if made is not None:
                    out.extend(made)
            except Exception as error:  # noqa: BLE001 - as above
                del out[before:]
                self._fail(step, message, error)
                self._bad_rows.append(row)
            else:
                at.extend(repeat(row, len(out) - before))
        return out, at

    def _fail(self, step: Step, message: Any, error: Exception) -> None:
        if not step.dead_letter:
            raise operator_error(step.operator, message, error) from error
        scrub(error)
        self._letters.append((message_text(message), step.operator, user_traceback(error)))

    def _with_letters(self, batch: pa.RecordBatch, arrays: list[pa.Array], good: int) -> pa.RecordBatch:
        names = [*self.schema.names, *self._carried, *([BAD] if self.bad else [])]
        if self._letters:
            arrays = [pa.concat_arrays([a, pa.nulls(len(self._letters), a.type)]) for a in arrays]
            if self.timed:
                ts = _taken(batch, TS, pa.array(self._bad_rows, pa.int64()))
                at = len(self.schema.names)
                arrays[at] = pa.concat_arrays([arrays[at].slice(0, good), ts])
        if self.bad:
            letters = [
                {"raw": raw, "file": operator, "line": None, "error": story}
                for raw, operator, story in self._letters
            ]
            arrays.append(pa.concat_arrays([pa.nulls(good, _BAD_ARROW), pa.array(letters, _BAD_ARROW)]))
        return pa.RecordBatch.from_arrays(arrays, names=names)


def operator_error(operator: str, message: Any, error: Exception) -> Exception:
    """The exception to raise in a worker when a user's function failed on `message`."""
    if isinstance(error, EmbeddedError):
        return error
    scrub(error)
    return embedded(
        OperatorError(
            f"{type(error).__name__}: {message_text(error, str, 10_000)}",
            operator=operator,
            message=message_text(message),
            user_traceback=user_traceback(error),
        )
    )


def reporting(fn: Callable[..., Any], operator: str) -> Callable[..., Any]:
    """`fn`, with errors that leave Spark as an `OperatorError` with `operator` and the arguments."""

    def call(*args: Any) -> Any:
        try:
            return fn(*args)
        except Exception as error:
            raise operator_error(operator, args if len(args) != 1 else args[0], error) from error

    return call


def user_traceback(error: BaseException) -> str:
    """The traceback from the user's function on, without the engine's frames around it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/drivetrain/spark/" not in f.filename.replace("\\", "/")]
    head = "Traceback (most recent call last):\n" if own else ""
    body = "".join(traceback.format_list(own)) + "".join(traceback.format_exception_only(error))
    return head + body.rstrip()


def _taken(batch: pa.RecordBatch, name: str, kept: pa.Array | None) -> pa.Array:
    column = batch.column(batch.schema.get_field_index(name))
    return column if kept is None else column.take(kept)
