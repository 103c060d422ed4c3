"""A small table that is read again at intervals while the application runs.

Problem: a table of a running query is fixed when the query is planned, and Spark's cache assumes that equal
plans have the same rows. A table that cannot be read for a moment, because its file is being replaced, should
not stop an application that has run for weeks.

Design: the rows are collected into the driver, and each batch is compiled with the newest rows at its
beginning. Reading again happens at the beginning of a batch, at most once in an interval. If this fails, or
if the columns have changed, the previous rows stay in use, with a warning, and the next attempt follows after
the next interval. The first read is an error like that of any source.

Several fragments may read one table, each in its own thread.

Called by `compile_context`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame, SparkSession

_log: Final = logging.getLogger(__name__)


class RefreshedTable:
    """The rows of the table `id`, which `read` reads; they are read again after `refresh_ms`."""

    def __init__(
        self,
        id: str,
        read: Callable[[], DataFrame],
        refresh_ms: int,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._id: Final = id
        self._read: Final = read
        self._refresh_s: Final = refresh_ms / 1000
        self._now: Final = now
        self._lock: Final = threading.Lock()
        self._rows: DataFrame | None = None
        self._read_at = 0.0

    def rows(self) -> DataFrame:
        """The newest rows; raises what the first read raises."""
        with self._lock:
            if self._rows is None:
                self._rows = _collected(self._read())
                self._read_at = self._now()
            elif self._now() >= self._read_at + self._refresh_s:
                self._rows = self._newer(self._rows)
                self._read_at = self._now()
            return self._rows

    def _newer(self, before: DataFrame) -> DataFrame:
        try:
            found = self._read()
            if found.schema.simpleString() == before.schema.simpleString():
                return _collected(found)
            why = f"it has other columns: {found.schema.simpleString()}, not {before.schema.simpleString()}"
        except Exception as error:  # noqa: BLE001 - the user's function and its database raise whatever they like
            why = f"{type(error).__name__}: {error}"
        _log.warning("the table %s cannot be read again, the rows before stay: %s", self._id, why)
        return before


def _collected(df: DataFrame) -> DataFrame:
    spark: SparkSession = df.sparkSession
    return spark.createDataFrame(df.toArrow(), schema=df.schema)
