"""A query engine without Spark and threads, for the simulation of the shells around it.

It keeps a query's directory as Spark does (`metadata`, `offsets/`, `commits/`), plans and reads channels with
the real reader, and calls the real batch. The computations of branches are replaced: each message passes
unchanged. `StandInQuery.step` does one thing: plan a batch, hand it over, or commit it.
"""

from __future__ import annotations

import itertools
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Set
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType, TimestampType
from shell_states import StateEntries

from drivetrain.api.sources import Generator
from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.errors import OperatorError
from drivetrain.runtime.channel.segments import SEGMENTS, write_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.checkpoints.snapshots import RELEASED
from drivetrain.runtime.state.state_partitions import SHUFFLE_PARTITIONS, state_partitions
from drivetrain.spark.batch.batch import Batch
from drivetrain.spark.channel.source import ChannelReader, channel_schema
from drivetrain.spark.connector.newest import Newest
from drivetrain.spark.connector.source import OpenedSource, Position
from drivetrain.spark.prepare.trunk import Trunk
from drivetrain.spark.session.offset_log import batch_numbers, committed, read_offsets

CARRIED = StructType([StructField("v", LongType()), StructField("__ts", TimestampType())])
SEGMENT = pa.schema([("v", pa.int64()), ("__ts", pa.timestamp("us", tz="UTC"))])
APART_MS = 50
PARTITIONS = 2
"""The number of partitions of a state before it is divided again."""
DISORDER_MS = 300
"""By how much messages are out of order; applications declare this disorder."""


OF_A_VERSION = 1_000_000
"""Each row that sinks show is marked with the change of its branches, times this number."""


def change_in(texts: Iterable[str]) -> int:
    """The number of changes that these texts of processors name; 0 if none does."""
    return max((int(text.partition("v >= -")[2]) for text in texts if text.startswith("v >= -")), default=0)


def is_bad(change: int) -> bool:
    """Whether the code of a change fails."""
    return change % 3 == 2


def time_of_ms(value: int) -> int:
    """The timestamp of a message."""
    return 10_000 + value % 1_000 * APART_MS + value * 7_919 % DISORDER_MS


class ConcurrentUpdateError(Exception):
    """Spark refuses to continue: another query has written the same batch to its log."""


class StandInSource(OpenedSource):
    """The messages `first`, `first` + 1, …, `count` of them; `draw` returns how many a batch may take."""

    bounded = True

    def __init__(self, first: int, count: int, draw: Callable[[], int]) -> None:
        self.first = first
        self.total = count
        self.draw = draw

    def history_start(self, from_ms: int, end: str) -> str:
        return json.dumps({"n": 0})

    def history_part(self, start: str | None, end: str, fraction: float) -> str:
        cut = json.loads(start or '{"n": 0}')["n"] + 1 + 10 * self.draw()
        return end if cut >= json.loads(end)["n"] else json.dumps({"n": cut})

    def position(self, offset: str | None) -> Position:
        done = 0 if offset is None else int(json.loads(offset)["n"])
        return Position(done, self.total, done == self.total)


class SourceReader:
    """Stands for Spark's reader of the source."""

    def __init__(self, source: StandInSource) -> None:
        self.source = source

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], _limit: object) -> dict[str, int]:
        return {"n": min(self.source.total or 0, start["n"] + self.source.draw())}

    def rows(self, start: dict[str, int], end: dict[str, int]) -> list[int]:
        return [self.source.first + n for n in range(start["n"], end["n"])]

    def commit(self, _end: dict[str, int]) -> None:
        """Does nothing: nothing is kept."""


class LogReader(ChannelReader):
    """The real reader of a channel, whose tasks are run at once."""

    def rows(self, start: dict[str, int], end: dict[str, int]) -> list[int]:
        found = []
        for partition in self.partitions(start, end):
            for batch in self.read(partition):
                values, marks = batch.column("v").to_pylist(), batch.column("__punct").to_pylist()
                pairs = zip(values, marks, strict=True)
                found += [v for v, is_punctuation in pairs if not is_punctuation]
        return found


def trunk_of(plan: Plan, fragment: Fragment) -> tuple[int, ...]:
    """For each source of a fragment, the number of the change that its trunk was compiled from."""
    sources = (plan.graph.nodes[id].operation.stream_source for id in fragment.processors)
    return tuple(source.rows - 1 for source in sources if isinstance(source, Generator))


class StandInFrame:
    """A batch of the trunk, which is read when it is first needed."""

    def __init__(self, read: Callable[[], list[int]], trunk: tuple[int, ...]) -> None:
        self.trunk = trunk
        self._read = read
        self._rows: list[int] | None = None

    @property
    def rows(self) -> list[int]:
        if self._rows is None:
            self._rows = self._read()
        return self._rows

    @property
    def read_rows(self) -> int:
        """How many rows have been read."""
        return len(self._rows or ())


class StandInFrames:
    """The results of the branches for a batch: the messages of the trunk, unchanged."""

    def __init__(self, branches: StandInBranches, batch: Batch) -> None:
        assert batch.df.trunk == branches.trunk, "the trunk is of another version than the branches"
        self.branches = branches
        self.batch = batch

    def __enter__(self) -> StandInFrames:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing: no frames are held."""

    has_letters = False

    def compute(self, ids: Set[str] | None = None) -> None:
        if ids is not None and not ids:
            return
        if any(map(is_bad, self.branches.changes(self.batch.df.rows))):
            raise OperatorError(
                "the code of the change fails", operator="a filter", message=None, user_traceback=""
            )

    def for_sink(self, _node: object) -> list[int]:
        self.compute()
        rows = self.batch.df.rows
        return [row + OF_A_VERSION * self.branches.change_for(row) for row in rows]

    def log(self, _node: object) -> None:
        """Does nothing: no test reads the log."""

    def segments(self, _channel: object, store: ChannelStore, folder: str = SEGMENTS) -> list[Segment]:
        self.compute()
        made: list[Segment] = []
        rows = [row for row in self.batch.df.rows if time_of_ms(row) >= self.branches.from_ms]
        for part in (rows[:2], rows[2:]):
            if part:
                stamps = [datetime.fromtimestamp(time_of_ms(v) / 1000, UTC) for v in part]
                columns = [pa.array(part, pa.int64()), pa.array(stamps, SEGMENT.field(1).type)]
                batches = [pa.record_batch(columns, schema=SEGMENT)]
                made.append(write_segment(store.files, f"b{self.batch.id}", batches, folder))
        return made

    def counts_emitted(self, _id: str) -> bool:
        return False

    def add_counts(self, _counts: object) -> None:
        """Does nothing: nothing is counted."""

    def reached(self) -> int:
        own = self.branches
        if own.before is not None:
            return sum(time_of_ms(row) >= own.at_ms for row in self.batch.df.rows)
        return len(self.batch.df.rows) if self.batch.whole else 0

    def newest(self) -> dict[str, Newest]:
        largest = max(map(time_of_ms, self.batch.df.rows), default=None)
        return {id: Newest(largest) for id in self.branches.timing}


class StandInBranches:
    """The branches of a fragment; `timing` are its processors that assign event time.

    `change` is the number of the user's change. With `before` they are the branches of two versions, and
    the earlier ones get the messages before `at_ms`.
    """

    def __init__(
        self,
        channels: list[str],
        timing: list[str],
        trunk: tuple[int, ...],
        change: int,
        before: StandInBranches | None = None,
        at_ms: int = 0,
    ) -> None:
        self.change = change
        self.trunk = trunk
        self.channels = channels
        self.timing = timing
        self.before = before
        self.at_ms = at_ms
        self.from_ms = 0
        """Older messages are dropped."""

    def change_for(self, row: int) -> int:
        """The change whose code gets a message."""
        if self.before is None or time_of_ms(row) >= self.at_ms:
            return self.change
        return self.before.change

    def changes(self, rows: list[int]) -> list[int]:
        """The changes whose code runs on the messages of a batch."""
        return list(map(self.change_for, rows))

    def frames(self, batch: Batch) -> StandInFrames:
        return StandInFrames(self, batch)

    def release(self) -> None:
        """Nothing is kept."""

    def empty(self) -> StandInFrame:
        return StandInFrame(list, self.trunk)

    def advance(self, df: StandInFrame) -> int:
        return len(df.rows)

    def schemas(self) -> dict[str, StructType]:
        return dict.fromkeys(self.channels, CARRIED)


class StandInEngine:
    """Runs the fragments of one process; `source` opens a source by its processor's id.

    `draw(n)` returns a number below n; `is_blocked` returns whether the batch of a directory must wait for
    space; `while_compiling` lets other parts run while a fragment is compiled.
    """

    spark: Any = SimpleNamespace(conf={})
    cores = 2
    states: StateEntries | None = None
    """The states that queries of sources keep; None: they keep none."""
    version_of: Callable[[Any], int]
    """The version that something was compiled with."""

    def __init__(
        self,
        draw: Callable[[int], int],
        source: Callable[[str], StandInSource],
        is_blocked: Callable[[StandInQuery], bool],
        while_compiling: Callable[[], object],
    ) -> None:
        self.draw = draw
        self.while_compiling = while_compiling
        self.source = source
        self.is_blocked = is_blocked
        self.queries: list[StandInQuery] = []
        self.rows_of: dict[tuple[Path, int], int] = {}
        """How many messages each batch had, by the directory of its query."""

    def compile(
        self, context: Any, fragment: Fragment, aside: Path | None = None
    ) -> tuple[Trunk, StandInBranches]:
        graph, own = context.plan.graph, context.rundir.fragment(fragment.id)
        self.while_compiling()
        readers: dict[str, Callable[[], Any]] = {}
        sources = {}
        for channel in fragment.inputs:
            options = {"uri": context.rundir.channel(channel), "maxRows": "6"}
            if aside is None:
                options |= {"subscriber": fragment.id, "released": str(own / RELEASED)}
            readers[channel] = lambda options=options: LogReader(options, channel_schema(CARRIED))
        for id in fragment.processors:
            if graph.nodes[id].operation.stream_source is not None:
                sources[id] = self.source(id)
                readers[id] = lambda opened=sources[id]: SourceReader(opened)
        made = SimpleNamespace(readers=readers, trunk=trunk_of(context.plan, fragment))
        made.context = context
        trunk = Trunk(made, "append", tuple(readers), sources, _no_frame, {})
        return trunk, self.branches(context, fragment, trunk)

    def branches(self, context: Any, fragment: Fragment, trunk: Trunk) -> StandInBranches:
        own: Any = trunk_of(context.plan, fragment)
        assert trunk.df.trunk == own, "branches are compiled after the trunk of another version"
        outputs = [channel.id for channel in context.plan.outputs(fragment.id)]
        nodes = context.plan.graph.nodes
        timing = [id for id in fragment.processors if nodes[id].operation.assigned_time is not None]
        change = change_in(context.plan.operators[id].text for id in fragment.processors)
        two = context.handing_over
        if two is None:
            made = StandInBranches(outputs, timing, own, change)
            made.from_ms = 0 if context.replay is None else context.replay.from_ms
            return made
        plan = two.context.plan
        old = self.branches(two.context, next(f for f in plan.fragments if f.id == fragment.id), trunk)
        return StandInBranches(outputs, timing, own, change, old, two.at_ms)

    def divide(self, checkpoint: Path, partitions: int) -> Iterator[None]:
        last = committed(checkpoint)
        running = [query for query in self.queries if query.is_active]
        assert all(query.checkpoint.parent not in checkpoint.parents for query in running), "a query runs"
        assert max(batch_numbers(checkpoint / "offsets")) == last, "a batch would be left out"
        lines = (checkpoint / "offsets" / str(last)).read_text().splitlines()
        known = json.loads(lines[1])
        lines[1] = json.dumps({**known, "conf": {SHUFFLE_PARTITIONS: str(partitions)}})
        _write(checkpoint / "offsets" / str(last + 1), "\n".join(lines))
        yield
        _write(checkpoint / "commits" / str(last + 1), (checkpoint / "commits" / str(last)).read_text())

    def empty_state(self, place: Path, *, changes: bool) -> Path:
        made = place / ("changes" if changes else "snapshot")
        made.write_text("")
        return made

    def start(
        self, trunk: Trunk, _name: str, checkpoint: Path, on_batch: Callable[..., None]
    ) -> StandInQuery:
        running = [query for query in self.queries if query.is_active]
        assert all(query.checkpoint != checkpoint for query in running), "two queries of one fragment run"
        if any(map(is_bad, trunk.df.trunk)):
            raise OperatorError("the trunk fails", operator="a source", message=None, user_traceback="")
        self.queries = [*running, StandInQuery(self, trunk, checkpoint, on_batch)]
        return self.queries[-1]


class StandInQuery:
    """A query that does nothing on its own: `step` advances it."""

    of_spark = None
    serial = itertools.count()

    def __init__(
        self, engine: StandInEngine, trunk: Trunk, checkpoint: Path, on_batch: Callable[..., None]
    ) -> None:
        self.engine = engine
        self.checkpoint = checkpoint
        self.on_batch = on_batch
        self.is_active = True
        self._error: BaseException | None = None
        self._reports: list[Any] = []
        self._unreported: Any = None
        self._trunk, self._context = trunk.df.trunk, trunk.df.context
        self._readers = {id: make() for id, make in trunk.df.readers.items()}
        for log in ("offsets", "commits"):
            (checkpoint / log).mkdir(parents=True, exist_ok=True)
        if not (checkpoint / "metadata").exists():
            assert not batch_numbers(checkpoint / "offsets"), "a query without metadata has batches"
            _write(checkpoint / "metadata", json.dumps({"id": str(next(self.serial))}))
        self._batch = committed(checkpoint)
        planned = max(batch_numbers(checkpoint / "offsets"), default=-1)
        if self._batch < 0:  # without a record of commits Spark takes the last batch that it planned
            self._batch = max(planned - 1, -1)
        self._at = self._known(self._batch)
        assert planned <= self._batch + 1, "Spark plans one batch at a time"
        self._planned = self._known(planned) if planned > self._batch else None
        self._has_run = False
        self._counted: dict[str, int] = {}
        self._is_running = False
        self.waits_for_data = False

    @property
    def committed(self) -> int:
        """The last batch that was committed; -1: none."""
        return self._batch

    def exception(self) -> BaseException | None:
        return self._error

    def reports(self, after: int) -> list[Any]:
        reports, self._reports = self._reports, []
        return [report for report in reports if report.batchId > after]

    def stop(self) -> None:
        self.is_active = False

    def step(self) -> None:
        """Plan a batch, hand it over, or commit it."""
        if not self.is_active or self._is_running:
            return
        if self._unreported is not None and self.engine.draw(2):
            self._reports.append(self._unreported)
            self._unreported = None
        try:
            if self._planned is None:
                self._plan()
            elif not self._has_run:
                self._run(self._planned)
            else:
                self._commit(self._planned)
        except Exception as error:  # noqa: BLE001 - a query ends by whatever it meets
            self._error, self.is_active = error, False

    def _known(self, batch: int) -> dict[str, dict[str, int]]:
        path = self.checkpoint / "offsets" / str(batch)
        if batch < 0:
            return {id: reader.initialOffset() for id, reader in self._readers.items()}
        _, offsets = read_offsets(path)
        return {id: json.loads(told or "{}") for id, told in zip(self._readers, offsets, strict=True)}

    def _plan(self) -> None:
        if self._batch >= 0:
            for id, reader in self._readers.items():
                reader.commit(self._at[id])
        ends = {
            id: reader.latestOffset(
                self._at[id], reader.getDefaultReadLimit() if isinstance(reader, LogReader) else None
            )
            for id, reader in self._readers.items()
        }
        self.waits_for_data = ends == self._at
        if not self.waits_for_data:
            metadata = {"batchWatermarkMs": 0, "conf": {SHUFFLE_PARTITIONS: str(self._partitions())}}
            lines = ["v1", json.dumps(metadata), *map(json.dumps, ends.values())]
            _create(self.checkpoint / "offsets" / str(self._batch + 1), "\n".join(lines))
            self._planned, self._has_run = ends, False

    def _partitions(self) -> int:
        return PARTITIONS if self._batch < 0 else state_partitions(self.checkpoint, self._batch) or PARTITIONS

    def _run(self, ends: dict[str, Any]) -> None:
        if self.engine.is_blocked(self):
            return
        counted: dict[str, int] = {}

        def read() -> list[int]:
            found = []
            for id, reader in self._readers.items():
                rows = reader.rows(self._at[id], ends[id])
                counted[id] = len(rows) + (isinstance(reader, LogReader) and self._at[id] != ends[id])
                found += rows
            return found

        self._is_running = True
        is_own = self.checkpoint.parent.parent.name == "fragments"  # a repair computes elsewhere
        states = self.engine.states if self._trunk and is_own else None
        of = (self.checkpoint, self._partitions(), self._batch + 1)
        try:
            if states is not None:
                states.begins(*of, self.engine.version_of(self._context))
            frame = StandInFrame(read, self._trunk)
            self.on_batch(frame, self._batch + 1)
            self.engine.rows_of[self.checkpoint, self._batch + 1] = frame.read_rows
            if states is not None:
                states.ends(*of, self.engine.version_of(self._context), read())
        finally:
            self._is_running = False
        self._has_run = True
        self._counted = counted

    def _commit(self, ends: dict[str, Any]) -> None:
        told = json.dumps({"nextBatchWatermarkMs": 0})
        _create(self.checkpoint / "commits" / str(self._batch + 1), f"v1\n{told}")
        if self._unreported is not None:
            self._reports.append(self._unreported)
        self._unreported = SimpleNamespace(
            batchId=self._batch + 1,
            durationMs={"addBatch": 1, "triggerExecution": 1},
            sources=[
                SimpleNamespace(
                    numInputRows=self._counted.get(id, 0),
                    startOffset=json.dumps(self._at[id]) if self._batch >= 0 else None,
                    endOffset=json.dumps(ends[id]),
                )
                for id in self._readers
            ],
            eventTime={},
            stateOperators=[],
        )
        self._batch, self._at, self._planned = self._batch + 1, ends, None


def _write(path: Path, text: str) -> None:
    """Write a file as Spark does: under a temporary name, then renamed."""
    aside = path.with_name(f".{path.name}.aside.tmp")
    aside.write_text(text)
    os.rename(aside, path)


def _create(path: Path, text: str) -> None:
    """Write a file of one of Spark's logs, unless another query has written it."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")  # which the next query deletes
    aside.write_text(text)
    try:
        os.link(aside, path)
    except FileExistsError:
        raise ConcurrentUpdateError(f"multiple streaming jobs detected for {path.name}") from None


def _no_frame(_df: object) -> Any:
    raise AssertionError("the stand-in's branches read the batch itself")
