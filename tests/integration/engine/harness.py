"""Runs small applications on the session's Spark and collects their results."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from drivetrain import Application, sinks, sources
from drivetrain.api.stream import Stream
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunResult
from drivetrain.spark.entry_points import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def at(ms: int) -> dt.datetime:
    """Milliseconds since the epoch as a UTC time."""
    return EPOCH + dt.timedelta(milliseconds=ms)


def ms(time: dt.datetime) -> int:
    """A UTC time as milliseconds since the epoch."""
    return round((time - EPOCH).total_seconds() * 1000)


def has_change(spark: SparkSession, name: str) -> bool:
    """Whether Java changes plans so: it needs the jar of `drivetrain warm-up`."""
    return name in str(spark.conf.get("spark.sql.extensions", ""))


class Harness:
    """Applications whose state and outputs live in one temporary directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def config(self, **keys: str) -> Config:
        """The configuration of a run; `__` in a keyword stands for a dot, `_` for a dash."""
        given = {k.replace("__", ".").replace("_", "-"): v for k, v in keys.items()}
        return Config.load(None, {}, {"state.dir": str(self.directory / "state"), **given})

    def run(
        self,
        app: Application,
        *,
        fresh: bool = False,
        replay_from_ms: int | None = None,
        from_savepoint: Path | None = None,
        listener: Any = None,
        **keys: str,
    ) -> RunResult:
        """Run an application to its end."""
        result = run(
            app,
            self.config(**keys),
            listener,
            fresh=fresh,
            replay_from=replay_from_ms,
            from_savepoint=from_savepoint,
        )
        result.check()
        return result

    def out(self, name: str = "out") -> Path:
        """Where a sink of this test writes."""
        return self.directory / name

    def sink(self, stream: Stream[Any], name: str = "out") -> None:
        """Write a stream as Parquet."""
        stream.sink(sinks.parquet(self.out(name)), name=f"to-{name}")

    def rows(self, name: str = "out") -> list[dict[str, Any]]:
        """The published rows of a sink, sorted by all columns."""
        directory = self.out(name)
        if not directory.is_dir():
            return []
        files = [str(p) for p in sorted(directory.glob("*.parquet"))]
        table = ds.dataset(files).to_table() if files else pa.table({})
        return sorted(table.to_pylist(), key=repr)


def events(
    app: Application, rows: Iterable[tuple[Any, ...]], schema: str, disorder: str = "0 s"
) -> Stream[Any]:
    """A stream of Python tuples whose column `ts` is the event time."""
    return app.read(sources.items(list(rows), schema=schema)).event_time("ts", max_disorder=disorder)
