"""The context that compiling the fragments of one application shares.

Called by `execution`, which makes it, and by all compilers: `fragment`, `branches`, `rerun_batch`.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from drivetrain.api.operations import How, Process, Table
from drivetrain.code.fingerprint import fingerprint
from drivetrain.config import Config
from drivetrain.config.catalog import kafka as kafka_keys
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.plan.plan import Plan
from drivetrain.core.replay.replay import Replay, has_event_time, source_time
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.compile.surroundings import Surroundings
from drivetrain.spark.connector.source import SourceContext
from drivetrain.spark.prepare.refreshed_table import RefreshedTable


@dataclass(frozen=True)
class HandoverSource:
    """The version that hands over to the one that is compiled: it gets the messages before `at_ms`."""

    context: CompileContext
    at_ms: int


@dataclass
class CompileContext:
    """The shared context of compiling one application; `how` collects how its operators run."""

    spark: SparkSession
    plan: Plan
    rundir: RunDirectory
    config: Config
    run_id: str = ""
    replay: Replay | None = None
    """Which messages the current life takes, if not all."""
    how: dict[str, tuple[How, str]] = field(default_factory=dict)
    schemas: dict[str, StructType] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    tables: dict[str, DataFrame] = field(default_factory=dict)
    refreshed: dict[str, RefreshedTable] = field(default_factory=dict)
    transactional: bool = False
    """Whether sinks publish with each checkpoint of the application, instead of each batch."""
    realtime: set[str] = field(default_factory=set)
    """The fragments that are compiled for Spark's real-time mode."""
    handing_over: HandoverSource | None = None
    """The version before, if the branches of both are compiled."""
    _codes: dict[str, str] = field(default_factory=dict)
    """Fingerprints of Tasks, by processor."""

    def apart(self) -> CompileContext:
        """A context for compiling a part again while other threads run: it records its facts separately."""
        return dataclasses.replace(
            self,
            how=dict(self.how),
            schemas=dict(self.schemas),
            columns=dict(self.columns),
            tables=dict(self.tables),
            refreshed=dict(self.refreshed),
            realtime=set(self.realtime),
        )

    def report(self, id: str) -> Callable[[How, str], None]:
        """A function that records how processor `id` runs."""

        def note(how: How, why: str) -> None:
            self.how[id] = (how, why)

        return note

    def table(self, id: str) -> DataFrame:
        """The DataFrame of a table, read once, or again after its time to refresh."""
        operation = self.plan.graph.nodes[id].operation
        assert isinstance(operation, Table)
        if operation.refresh_ms is not None:
            made = RefreshedTable(id, lambda: self._read_again(id), operation.refresh_ms)
            return self.refreshed.setdefault(id, made).rows()
        if id not in self.tables:
            self.tables[id] = self._read_whole(id, self.rundir.tables(id)).cache()
        return self.tables[id]

    def _read_whole(self, id: str, directory: Path) -> DataFrame:
        from drivetrain.connectors.opening import read_whole

        source = self.plan.graph.nodes[id].operation.any_source
        assert source is not None
        return read_whole(source, self.source_context(id, directory))

    def _read_again(self, id: str) -> DataFrame:
        # Readers of files list the files at the first read, and later reads would only find those.
        directory = self.rundir.tables(id) / "newest"
        shutil.rmtree(directory, ignore_errors=True)
        return self._read_whole(id, directory)

    def surroundings(
        self,
        id: str,
        *,
        clock_ms: int | None = None,
        is_last: bool = False,
        pictures: str | None = None,
    ) -> Surroundings:
        """The context that compiling processor `id` may need besides its inputs."""
        return Surroundings(
            self.plan.graph,
            self.table,
            self.report(id),
            self._instances(id),
            clock_ms,
            is_last,
            pictures=pictures,
        )

    def _instances(self, id: str) -> str:
        """The name of the instances of a Task in Python processes: of this run, and of its code."""
        operation = self.plan.graph.nodes[id].operation
        if not isinstance(operation, Process):
            return self.run_id
        if id not in self._codes:
            self._codes[id] = fingerprint(operation)
        return f"{self.run_id}/{self._codes[id]}"

    def source_context(self, id: str, directory: Path) -> SourceContext:
        """The context of a source adapter."""
        replayed = None if self.replay is None else self.replay.sources.get(id)
        is_read = self.plan.graph.nodes[id].operation.stream_source is not None
        time = source_time(self.plan.graph, id) if is_read else None
        return SourceContext(
            spark=self.spark,
            state_dir=str(directory),
            app_id=self.rundir.app_id,
            source_id=id,
            max_batch_bytes=self.config[run_keys.MAX_BATCH_BYTES],
            max_batch_rows=self.config[run_keys.MAX_BATCH_ROWS] or None,
            stores=StoreSettings.of(self.config),
            kafka_options=self.config[kafka_keys.OPTIONS],
            replay_from_ms=None if self.replay is None or replayed is None else self.replay.from_ms,
            replay_column=None if time is None else time.column,
            lasting_dir=str(self.rundir.source(id)),
            timed=not is_read or has_event_time(self.plan.graph, id),
            realtime=any(id in f.processors for f in self.plan.fragments if f.id in self.realtime),
        )
