"""Checks that a source of a connector replays batches exactly: for the tests of its author.

Design: a streaming query of Spark over the opened source, as the engine starts one, whose first batches die
after they were read. The source is opened again with the same state directory, as by another process.

Called by tests of connectors, through `drivetrain.testing`.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drivetrain.api.durations import milliseconds
from drivetrain.config import Config
from drivetrain.connectors.opening import check_source as check_declared
from drivetrain.connectors.opening import open_source
from drivetrain.spark.connector.source import OpenedSource, SourceContext
from drivetrain.spark.session.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOOK_S: Final = 0.1
_DIES: Final = "the batch dies, as the check wants it"


def check_source(
    declare: Callable[[], Any],
    expected: Iterable[Any],
    *,
    spark: SparkSession | None = None,
    timeout: str = "2 min",
) -> None:
    """Check a source; raises `AssertionError` for the first requirement that it violates.

    `declare` returns the declaration. `expected` are the rows that the source must return, as tuples or
    mappings in the order of the columns; for an unbounded source, the rows that exist now. `timeout` limits
    the time for reading them.

    >>> from drivetrain.testing import check_source
    >>> def test_numbers(spark):
    ...     made = lambda: sources.items([(1,), (2,)], schema="n bigint")
    ...     check_source(made, [(1,), (2,)], spark=spark)
    """
    with tempfile.TemporaryDirectory(prefix="drivetrain-source-") as directory:
        checks = _SourceChecks(declare, spark or session(Config()), Path(directory), timeout)
        checks.all(Counter(tuple(r.values()) if isinstance(r, Mapping) else tuple(r) for r in expected))


class _SourceChecks:
    def __init__(
        self, declare: Callable[[], Any], spark: SparkSession, directory: Path, timeout: str
    ) -> None:
        self._declare: Final = declare
        self._spark: Final = spark
        self._directory: Final = directory
        self._timeout_s: Final = milliseconds(timeout, "timeout") / 1000
        self._batches: dict[int, Counter[tuple[Any, ...]]] = {}
        """The rows of each batch, when it was first read."""
        self._broken: AssertionError | None = None

    def all(self, expected: Counter[tuple[Any, ...]]) -> None:
        """Read all, and die in the first and in the second batch."""
        declaration = self._declare()
        _require(isinstance(declaration.bounded, bool), "bounded is true or false", declaration.bounded)
        pickle.dumps(declaration)
        check_declared(declaration, Config())
        for dies_in in (0, 1, None):
            self._run(dies_in, expected)
        found = sum(self._batches.values(), Counter[tuple[Any, ...]]())
        _require(
            found == expected,
            "all rows are read, each once",
            {"missing": list((expected - found).elements()), "more": list((found - expected).elements())},
        )

    def _run(self, dies_in: int | None, expected: Counter[tuple[Any, ...]]) -> None:
        opened = self._open()
        _require(list(opened.df.columns) != [], "df has the columns of the user", opened.df.columns)
        query = (
            opened.df.writeStream.foreachBatch(lambda df, batch: self._take(df, batch, dies_in))
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .start()
        )
        done, ends_at = 0, time.monotonic() + self._timeout_s
        try:
            while query.isActive:
                _require(time.monotonic() < ends_at, "all rows are read in time", self._read_so_far)
                last = query.lastProgress
                offset = None if last is None else last.sources[0].endOffset
                position = opened.position(offset)
                _require(position.done >= done, "the position never goes back", (done, position.done))
                done = position.done
                if offset is not None:
                    opened.committed(offset)
                if position.finished or (not opened.bounded and self._read_so_far >= expected.total()):
                    break
                time.sleep(_LOOK_S)
        finally:
            query.stop()
            opened.close()
        error = query.exception()
        if self._broken is not None:
            raise self._broken
        if error is not None and _DIES not in str(error):
            raise error

    def _open(self) -> OpenedSource:
        state = self._directory / "state"
        state.mkdir(exist_ok=True)
        return open_source(self._declare(), SourceContext(self._spark, str(state), "kit", "source"))

    def _take(self, df: DataFrame, batch: int, dies_in: int | None) -> None:
        rows = Counter(map(tuple, df.collect()))
        known = self._batches.setdefault(batch, rows)
        try:
            _require(known == rows, f"batch {batch} has the same rows when it runs again", (known, rows))
        except AssertionError as error:  # Spark would wrap it
            self._broken = error
            raise
        if batch == dies_in:
            raise RuntimeError(_DIES)

    @property
    def _read_so_far(self) -> int:
        return sum(rows.total() for rows in self._batches.values())


def _require(holds: bool, promise: str, got: object) -> None:
    if not holds:
        raise AssertionError(f"{promise}\n  got: {got!r}")
