"""Checks that a connector keeps the promises of `drivetrain.spark.connector`: for the tests of its author.

Problem: what a source or a sink must do shows only when a run dies, in batches that run twice. An author
cannot see the engine's crashes, and finds out from lost or doubled rows.

Design: the calls that the engine makes, in the order in which it makes them around a crash, on the author's
own system. A process that dies is imitated by opening the declaration again with the same state directory.
Each broken promise is an `AssertionError` with the promise, what was expected and what came.

Called by tests of connectors, through `drivetrain.testing`.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from drivetrain.api.sinks import Guarantee
from drivetrain.config import Config
from drivetrain.connectors.opening import open_sink
from drivetrain.errors import DrivetrainError
from drivetrain.spark.connector.sink import (
    CommittingSinkWriter,
    RollingSinkWriter,
    SinkContext,
    TransactionalSinkWriter,
)
from drivetrain.spark.session.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = Sequence[tuple[Any, ...]]

SCHEMA: Final = "key string, n bigint"
ROWS: Final[Rows] = tuple((f"key-{n % 3}", n) for n in range(12))
"""The rows that are written, two in each batch."""
_SINK: Final = "sink"


def check_sink(
    declare: Callable[[], Any],
    read: Callable[[], Iterable[Any]],
    *,
    rows: Rows = ROWS,
    schema: str = SCHEMA,
    spark: SparkSession | None = None,
) -> None:
    """Check a sink with an empty target; raises `AssertionError` for the first requirement that it violates.

    `declare` returns the declaration. `read` returns the rows that readers of the target see, as tuples or
    mappings in the order of the columns. `rows` are at least twelve different rows with the columns of
    `schema`.

    >>> from drivetrain.testing import check_sink
    >>> def test_lines(spark, folder):
    ...     check_sink(lambda: sinks.json(str(folder)), lambda: read_all(folder), spark=spark)
    """
    with tempfile.TemporaryDirectory(prefix="drivetrain-sink-") as state:
        checks = _SinkChecks(declare, read, rows, schema, spark or session(Config()), Path(state) / _SINK)
        checks.all()


@dataclass
class _SinkChecks:
    declare: Callable[[], Any]
    read: Callable[[], Iterable[Any]]
    rows: Rows
    schema: str
    spark: SparkSession
    state: Path
    shown: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    """What readers must see."""

    def all(self) -> None:
        """All checks, in the order in which the engine would come to them."""
        if len(self.rows) < 12 or len(set(self.rows)) < len(self.rows):
            raise ValueError("rows: at least twelve different ones are needed")
        self.declared()
        self.opened()
        self.written()
        self.failing()
        self.prepared()
        self.fresh()

    def declared(self) -> None:
        """A declaration is data: it can be sent to another process."""
        declaration = self.declare()
        _require(
            type(pickle.loads(pickle.dumps(declaration))) is type(declaration),  # noqa: S301 - our own bytes
            "a declaration can be pickled",
        )

    def opened(self) -> None:
        """Opening and validating change nothing that readers see."""
        self._sees("the target is empty at first")
        writer = self._open()
        self._sees("opening shows nothing")
        writer.validate()
        writer.validate()
        self._sees("validate shows nothing, and can be called again")
        _require(
            writer.guarantee in get_args(Guarantee), "the guarantee is one that there is", writer.guarantee
        )

    def written(self) -> None:
        """Each batch is there once, though it is written again with other rows, by another process."""
        writer = self._ready()
        self._write(writer, 0, "write shows the rows of a batch")
        if self._is_exact(writer):
            for again in (writer, self._ready()):
                count = again.write(self._frame(self.rows[10:12]), 0)
                _end(again)
                self._sees(
                    "a batch that was written adds nothing when it is written again, whatever its rows"
                )
                _require(count == 0, "writing a batch again returns 0", count)
        writer = self._ready()
        self._write(writer, 1, "a sink that is opened again goes on")
        writer.write(self._frame(()), 2)
        _end(writer)
        self._sees("an empty batch adds nothing")

    def failing(self) -> None:
        """A batch that fails is an error, and shows nothing if the sink is exact."""
        writer = self._ready()
        *others, last = self._frame(()).columns
        broken = self._frame(self.rows[4:6]).selectExpr(
            *others,
            f"if({last} IS NULL, {last}, raise_error('this batch fails')) AS {last}",
        )
        has_raised = False
        try:
            writer.write(broken, 3)
        except Exception:  # noqa: BLE001 - any error is right
            has_raised = True
        _require(has_raised, "write of a batch that cannot be computed raises an error", "none")
        if self._is_exact(writer):
            _end(self._ready())
            self._sees("a batch that failed shows nothing")
            self._write(self._ready(), 3, "a batch that failed can be written again", self.rows[4:6])

    def prepared(self) -> None:
        """What is prepared is unseen, waits for another process, and is shown once, or dropped."""
        writer = self._ready()
        if not isinstance(writer, TransactionalSinkWriter | CommittingSinkWriter):
            return
        writer.prepare(self._frame(self.rows[10:12]), 4)
        self._sees("a prepared batch is unseen")
        writer = self._ready_to_prepare()
        _require(writer.prepared() == [4], "another process finds what is prepared", writer.prepared())
        writer.abort(4)
        self._sees("a batch that is aborted is unseen")
        _require(writer.prepared() == [], "a batch that is aborted is no longer prepared", writer.prepared())
        writer.prepare(self._frame(self.rows[10:12]), 4)
        writer.prepare(self._frame(self.rows[6:8]), 4)
        self.shown.update(self.rows[6:8])
        for count in (2, 0):
            writer = self._ready_to_prepare()
            shown = self._publish(writer, 4)
            self._sees("publishing shows the newest preparation of a batch, once")
            _require(shown == count, f"publishing returns {count} rows", shown)
        if isinstance(writer, CommittingSinkWriter):
            has_raised = False
            try:
                writer.commit(99)
            except Exception:  # noqa: BLE001 - any error is right
                has_raised = True
            _require(has_raised, "commit of a batch that was never prepared raises an error", "none")

    def fresh(self) -> None:
        """Starting over removes what this application wrote; an exact sink knows what that is."""
        stranger = open_sink(self.declare(), SinkContext("another", _SINK, str(self.state) + "-of-another"))
        if self._is_exact(stranger):
            with suppress(DrivetrainError):  # it may refuse a target of another application
                stranger.check_fresh()
                stranger.fresh()
            self._sees("starting over removes nothing of another application")
        try:
            self._open().check_fresh()
        except DrivetrainError:
            self._sees("a refusal to start over changes nothing")
            return
        self._sees("check_fresh changes nothing")
        shutil.rmtree(self.state, ignore_errors=True)
        writer = self._open()
        writer.fresh()
        self.shown.clear()
        self._sees("starting over removes what the application wrote")
        writer.validate()
        self._write(writer, 0, "after starting over, batches have their numbers again")

    # -- steps ---------------------------------------------------------------------------------------

    def _open(self) -> Any:
        return open_sink(self.declare(), SinkContext("kit", _SINK, str(self.state), Config()))

    def _ready(self) -> Any:
        writer = self._open()
        writer.validate()
        return writer

    def _ready_to_prepare(self) -> TransactionalSinkWriter | CommittingSinkWriter:
        writer: TransactionalSinkWriter | CommittingSinkWriter = self._ready()
        return writer

    def _is_exact(self, writer: Any) -> bool:
        return bool(writer.guarantee == "exactly once")

    def _frame(self, rows: Rows) -> DataFrame:
        return self.spark.createDataFrame(list(rows), self.schema)

    def _write(self, writer: Any, batch: int, promise: str, rows: Rows | None = None) -> None:
        rows = self.rows[2 * batch : 2 * batch + 2] if rows is None else rows
        count = writer.write(self._frame(rows), batch)
        _end(writer)
        self.shown.update(rows)
        self._sees(promise)
        _require(count == len(rows), "write returns the number of rows", count)

    def _publish(self, writer: TransactionalSinkWriter | CommittingSinkWriter, batch: int) -> int:
        if isinstance(writer, TransactionalSinkWriter):
            return writer.publish(1, {_SINK: batch}, {_SINK: writer}).get(_SINK, 0)
        return writer.commit(batch)

    def _sees(self, promise: str) -> None:
        found = Counter(tuple(r.values()) if isinstance(r, Mapping) else tuple(r) for r in self.read())
        missing, more = self.shown - found, found - self.shown
        if missing or more:
            raise AssertionError(
                f"{promise}\n  missing: {sorted(missing.elements(), key=repr)}"
                f"\n  not expected: {sorted(more.elements(), key=repr)}"
            )


def _end(writer: Any) -> None:
    """Have a sink that collects batches show all of them."""
    if isinstance(writer, RollingSinkWriter):
        writer.roll(ends=True)


def _require(holds: bool, promise: str, got: object = None) -> None:
    if not holds:
        raise AssertionError(f"{promise}\n  got: {got!r}")
