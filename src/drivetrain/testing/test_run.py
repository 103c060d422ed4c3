"""A test of an application: rows in, the clock advanced, results out.

Problem: whether an application is right depends on when messages come, how late, and in which order, and a
test must express all that in a few lines, and run on the real engine.

Design: `TestRun` starts the application with inputs that the test feeds (`rewiring`), and each call waits
until everything that follows from it has happened (`driven_run`). So the results that a test sees do not
depend on the speed of the machine. Results that the application's own plan does not show come from a second
run (`scripted_run`), which starts when the test asks for them.

Called by tests of users, through `drivetrain.testing`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from drivetrain.api.application import Application
from drivetrain.api.durations import milliseconds
from drivetrain.api.moments import moment_ms
from drivetrain.api.stream import Stream
from drivetrain.config.nearest import did_you_mean
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.run_progress import RunResult
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import OperatorError, UserError
from drivetrain.spark.state.state_query import States, states_of
from drivetrain.testing.failures import Failures
from drivetrain.testing.rewiring import Setup, require_known
from drivetrain.testing.scripted_run import ClockAdvanced, Ended, ScriptedRun, Sent, Step

Row = dict[str, Any]


class TestRun:
    """A run of `app`: a test sends its messages and reads its results. A context manager.

    `inputs` maps names of sources and tables to rows. Rows of tables must be passed here; rows of sources are
    sent when the run has started. `real` names the tables that the run reads, and the sinks that it writes,
    as in production. `watch` names processors inside a trunk that the run shows itself, with a different
    plan; without it, a second run shows them. `columns` maps sources that do not declare their columns to a
    DDL. `config` sets configuration keys. `now` is the time of arrival for sources that stamp messages on
    arrival, until the clock is advanced. `timeout` limits each wait.

    Raises the errors of the application, `UserError` for a name that the application does not have.

    >>> def test_hourly() -> None:
    ...     with TestRun(app) as run:
    ...         run.send("orders", [{"at": "2026-01-01T00:10", "amount": 3}])
    ...         run.advance_clock("2026-01-01T01:00")
    ...         assert run.emitted("hourly", "total") == [{"total": 3}]
    ...         assert run.late("hourly") == []
    """

    __test__: Final = False  # pytest takes every class that begins with Test for one of its own

    def __init__(
        self,
        app: Application,
        inputs: Mapping[str, Iterable[Any]] | None = None,
        *,
        real: Iterable[str] = (),
        watch: Iterable[str] = (),
        columns: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        now: str | int | dt.datetime = "2026-01-01T00:00",
        timeout: str = "2 min",
    ) -> None:
        self._graph: Final = app.graph()
        self._columns: Final = dict(columns or {})
        self._sets: Final = {name: str(value) for name, value in (config or {}).items()}
        self._now_ms = moment_ms(now, "now")
        self._timeout_s: Final = milliseconds(timeout, "timeout") / 1000
        given = {name: list(rows) for name, rows in (inputs or {}).items()}
        for name in given:
            require_known(self._graph, name, self._sources(tables=True), "source or table")
        tables = {name: rows for name, rows in given.items() if self._graph.nodes[name].operation.is_table}
        self._first: Final = {name: rows for name, rows in given.items() if name not in tables}
        self._setup: Final = Setup(tables, frozenset(real), frozenset(watch))
        self._failures: Final = Failures()
        self._steps: list[Step] = []
        self._run: ScriptedRun | None = None
        self._is_over = False
        self._second: tuple[int, ScriptedRun | None] = (0, None)

    # -- life ----------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self._opened(ends=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._failures.require_all_happened()
        finally:
            self.close()

    def close(self) -> None:
        """End the run, and delete what it has written; leaving the block does that."""
        runs = self._run, self._second[1]
        self._run, self._second = None, (0, None)
        self._failures.close()
        for run in filter(None, runs):
            run.close()

    # -- what a test does ----------------------------------------------------------------------------

    def send(self, source: str | Stream[Any], rows: Iterable[Any]) -> None:
        """Send rows to a source as one batch, and wait until everything that follows has happened.

        A row is a mapping (a column that is missing is null), a dataclass instance, a sequence of values in
        the order of the columns, or the bare value of a single column. Timestamps may be ISO 8601 text, in
        UTC unless it has a zone. Raises `InputError` for a row that does not fit, and the error of a
        processor that fails, with the traceback of the application's function.

        >>> def morning(run: TestRun) -> None:
        ...     run.send("orders", [{"at": "2026-01-01T09:00", "amount": 3}, ("2026-01-01T09:30", 4)])
        """
        self._send(source, rows)

    def advance_clock(self, to: str | int | dt.datetime) -> None:
        """Declare that no source has messages older than `to` any more, and wait for the consequences.

        Windows that end by then fire. `to` also becomes the time of arrival of later messages, for sources
        that stamp messages on arrival. A clock does not move back: an earlier time changes nothing.
        """
        clock_ms = moment_ms(to, "advance_clock")
        self._now_ms = max(self._now_ms, clock_ms)
        self._take(ClockAdvanced(clock_ms))

    def end(self) -> RunResult:
        """End all inputs, wait for the end of the run, and return its result; its messages can still be read.

        The application's `when_finished` hooks are not called: they read sinks, which were not written.
        """
        self._take(Ended())
        result = self._active().result
        assert result is not None
        self._is_over = True
        return result

    def crash_at(self, point: str, time: int = 1) -> None:
        """Make the run die when it reaches `point` the `time`-th time from now, and continue from its state.

        The points are those of `drivetrain.crash_points`, such as "before-sink", "after-entry" and
        "before-commit". Raises `UserError` for any other; a run that ends without having reached the point
        is an error, too.

        >>> def twice(run: TestRun) -> None:
        ...     run.crash_at("before-commit")
        ...     run.send("orders", [{"at": "2026-01-01T09:00", "amount": 3}])
        """
        self._failures.arm(point, time)

    def restart(self) -> None:
        """Make the run die between two batches, and continue from its state."""
        self._active().restart()

    # -- what a test looks at ------------------------------------------------------------------------

    def emitted(self, processor: str | Stream[Any], *columns: str) -> list[Row]:
        """The messages that a processor has emitted so far, or a sink would have written, batch by batch.

        `columns` selects columns. Timestamps are datetimes in UTC. Within a batch, messages are in their
        order if nothing was grouped; otherwise the order is undefined: sort before you compare.
        """
        name = _id(processor)
        require_known(self._graph, name)
        run = self._active(over=True)
        table = (run if name in run.listed else self._beside()).emitted(name)
        return _rows(table, columns)

    def late(self, processor: str | Stream[Any], *columns: str) -> list[Row]:
        """The messages that were too late for the windows of a processor, as they were before grouping."""
        name = _id(processor)
        require_known(self._graph, name, self._windowed(), "window for which messages can be late,")
        if not self._may_be_late(name):
            return []
        return _rows(self._beside().late(name), columns)

    def dead_letters(self, processor: str | None = None) -> list[Row]:
        """The dead letters, of one processor or of all: operator, message, file, line, error, timestamp."""
        letters = self._active(over=True).dead_letters()
        return [
            letter
            for letter in letters
            if processor is None or str(letter["operator"]).partition(" ")[0] == processor
        ]

    def state(self, processor: str | Stream[Any]) -> States:
        """The states of a processor, as `drivetrain.state` gives them."""
        run = self._active(over=True)
        return states_of(run.home, _id(processor), run.spark)

    @property
    def clock(self) -> dt.datetime | None:
        """The application's clock; None before it has one, and when all inputs have ended."""
        clock_ms = self._active(over=True).clock_ms
        if clock_ms is None or clock_ms >= FINAL_CLOCK_MS:
            return None
        return dt.datetime.fromtimestamp(clock_ms / 1000, dt.UTC)

    # -- within --------------------------------------------------------------------------------------

    def _sources(self, *, tables: bool = False) -> Sequence[str]:
        nodes = self._graph.nodes.values()
        return [
            n.id for n in nodes if n.operation.stream_source is not None or (tables and n.operation.is_table)
        ]

    def _opened(self, *, ends: bool) -> Self:
        """Start the run and send the first inputs; with `ends` it has ended when this returns."""
        self._run = self._started(self._setup, self._failures)
        try:
            for number, (source, rows) in enumerate(self._first.items(), 1):
                self._send(source, rows, settles=not ends or number < len(self._first))
            if ends:
                self.end()
        except BaseException:
            self.close()
            raise
        return self

    def _send(self, source: str | Stream[Any], rows: Iterable[Any], *, settles: bool = True) -> None:
        name = _id(source)
        require_known(self._graph, name, self._sources(), "source")
        batch = self._active().inputs[name].converted(rows, self._now_ms)
        if batch is not None:
            self._take(Sent(name, batch, settles))

    def _started(self, setup: Setup, failures: Failures) -> ScriptedRun:
        run = ScriptedRun(self._graph, setup, self._columns, self._sets, failures, self._timeout_s)
        weakref.finalize(self, run.close)  # of a run that nobody closes
        return run

    def _active(self, *, over: bool = False) -> ScriptedRun:
        """The run; with `over` also when it has ended. Raises `UserError` when there is none."""
        if self._run is None:
            raise UserError(
                "the run is not open",
                where=self._graph.name,
                remedy="use it in a block: with TestRun(app) as run",
            )
        if self._is_over and not over:
            raise UserError(
                "the run has ended", where=self._graph.name, remedy="send everything before `end`"
            )
        return self._run

    def _take(self, step: Step) -> None:
        try:
            self._active().take(step)
        except OperatorError as error:
            error.add_note(error.user_traceback)
            raise
        self._steps.append(step)

    def _may_be_late(self, name: str) -> bool:
        """Whether a message can have been late: Spark counts those that it drops, in each life of a query."""
        window = self._graph.nodes[name].operation.grouping_window
        allows = window is not None and window.allowed_lateness_ms > 0
        run = self._active(over=True)
        return allows or run.was_restarted or run.late_messages(name) > 0

    def _beside(self) -> ScriptedRun:
        """A second run that shows everything, and has done what this one did so far."""
        steps, run = self._second
        if run is not None and steps == len(self._steps):
            return run
        if run is not None:
            run.close()
        shown = self._setup.watched | {
            id for id in self._graph.nodes if id not in self._active(over=True).listed and self._is_stream(id)
        }
        setup = dataclasses.replace(self._setup, watched=shown, late=frozenset(self._windowed()))
        with armed(_ignore):
            run = self._started(setup, Failures())
            for step in self._steps:
                run.take(step)
            run.rest()
        self._second = len(self._steps), run
        return run

    def _is_stream(self, id: str) -> bool:
        operation = self._graph.nodes[id].operation
        return not operation.is_table and not operation.ends_stream

    def _windowed(self) -> list[str]:
        """The processors that leave out late messages."""
        nodes = self._graph.nodes.values()
        return [
            n.id for n in nodes if n.operation.grouping_window is not None and n.operation.has_late_messages
        ]


def run_app(app: Application, inputs: Mapping[str, Iterable[Any]], **options: Any) -> TestRun:
    """Run `app` on `inputs` to their end, and return the run to look at; `options` are those of `TestRun`.

    The inputs are sent in their order, each as one batch.

    >>> def test_totals() -> None:
    ...     run = run_app(app, {"orders": [("2026-01-01T00:10", 3), ("2026-01-01T00:20", 4)]})
    ...     assert run.emitted("hourly", "total") == [{"total": 7}]
    """
    return TestRun(app, inputs, **options)._opened(ends=True)


def _ignore(point: CrashPoint) -> None:
    """A run that only looks does not die."""


def _id(processor: str | Stream[Any]) -> str:
    return processor.id if isinstance(processor, Stream) else processor


def _rows(table: Any, columns: Sequence[str]) -> list[Row]:
    if columns and table.num_columns:
        for name in columns:
            if name not in table.column_names:
                raise UserError(
                    f"there is no column {name!r}",
                    expected=", ".join(table.column_names),
                    got=name,
                    remedy=did_you_mean(name, table.column_names, otherwise="correct the name"),
                )
        table = table.select(list(columns))
    rows: list[Row] = table.to_pylist()
    return rows
