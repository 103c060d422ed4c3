"""One fragment as one Spark streaming query: its trunk as a plan, its branches as work on each batch.

The trunk (inputs, the stateless prefix, the stateful operator) is compiled once and belongs to Spark's
checkpoint. The branches are compiled per batch inside `foreachBatch`, on ordinary DataFrames, so they
are not part of any state. See `branches` for them and `run` for the life of the whole application.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from drivetrain.api.graph import (
    Aggregate,
    Deduplicate,
    EventTime,
    Fold,
    JoinStream,
    Node,
    Process,
    Read,
    Refine,
    Table,
)
from drivetrain.api.sources import FileSource, Generator
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.plan import Fragment, How, Plan
from drivetrain.errors import InternalError
from drivetrain.spark.channel.clocked import data_only, union_clock, with_channel_clock, with_end
from drivetrain.spark.channel.columns import PUNCT, TS, read_channel
from drivetrain.spark.compile import windowed
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.keyed import fold, stateful_task
from drivetrain.spark.compile.stateless import apply
from drivetrain.spark.compile.tasks import stateless_task
from drivetrain.spark.failures import refusals_named
from drivetrain.spark.ingested import Ingested, ingested, is_ingested
from drivetrain.spark.python_stage import BAD
from drivetrain.spark.rundir import RunDirectory
from drivetrain.spark.sources import OpenedSource, SourceContext, open_source


@dataclass
class CompileContext:
    """What compiling the fragments of one application shares; `how` collects how operators run."""

    spark: SparkSession
    plan: Plan
    rundir: RunDirectory
    config: Config
    run_id: str = ""
    how: dict[str, tuple[How, str]] = field(default_factory=dict)
    schemas: dict[str, StructType] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    tables: dict[str, DataFrame] = field(default_factory=dict)

    def report(self, id: str) -> Callable[[How, str], None]:
        """A place to say how processor `id` runs."""

        def note(how: How, why: str) -> None:
            self.how[id] = (how, why)

        return note

    def table(self, id: str) -> DataFrame:
        """The DataFrame of a table, read once."""
        if id not in self.tables:
            operation = self.plan.graph.nodes[id].operation
            assert isinstance(operation, Table)
            self.tables[id] = self.read_table(operation, id).cache()
        return self.tables[id]

    def read_table(self, operation: Table, id: str) -> DataFrame:
        """A bounded source as a batch DataFrame."""
        from drivetrain.spark.sources import read_whole

        return read_whole(operation.source, self.source_context(id, self.rundir.path / "tables" / id))

    def source_context(self, id: str, directory: Path) -> SourceContext:
        """What a source adapter is given."""
        return SourceContext(
            spark=self.spark,
            state_dir=str(directory),
            app_id=self.rundir.app_id,
            source_id=id,
            max_batch_bytes=self.config[run_keys.MAX_BATCH_BYTES],
            max_batch_rows=self.config[run_keys.MAX_BATCH_ROWS] or None,
        )


@dataclass(frozen=True)
class Trunk:
    """A compiled trunk: the streaming DataFrame, Spark's output mode, what feeds it.

    `inputs` are source and channel ids in the order of Spark's offsets; a plain source behind a
    clock is followed by its clock stream (`None`). `frame` is what branches start from, as a
    function of a batch DataFrame. `stored` are the sources that are stored at their end first.
    """

    df: DataFrame
    mode: str
    inputs: tuple[str | None, ...]
    sources: Mapping[str, OpenedSource]
    frame: Callable[[DataFrame], Frame]
    stored: Mapping[str, Ingested]

    @property
    def only_at_end(self) -> bool:
        """Whether only the batch that ends the input has results: those of a global window."""
        return self.mode == "complete"


class TrunkCompiler:
    """Compiles the trunk of one fragment."""

    def __init__(self, context: CompileContext, fragment: Fragment) -> None:
        self.context = context
        self.fragment = fragment
        self.plan = context.plan
        self.frames: dict[str, Frame] = {}
        self.sources: dict[str, OpenedSource] = {}
        self.stored: dict[str, Ingested] = {}
        self.inputs: list[str | None] = []
        self.clocked: set[str] = set()  # processors behind which the clock is in the plan
        self.directory = context.rundir.fragment(fragment.id)

    @property
    def clock_path(self) -> str:
        """Where the engine publishes the clock of plain sources."""
        return str(self.directory / "clock")

    def compile(self) -> Trunk:
        """Build the trunk; raises the error of the operator that Spark refuses."""
        nodes = [self.plan.graph.nodes[i] for i in self.fragment.trunk]
        mode = "append"
        expand: Callable[[DataFrame], Frame] | None = None
        last: Frame | None = None
        for node in nodes:
            with refusals_named(str(node)):
                if node.id == self.fragment.stateful:
                    df, mode, expand = self._stateful(node)
                    last = Frame(df)
                else:
                    last = self._stateless(node)
            self.frames[node.id] = last
        if last is None:  # a fragment behind a cut: its only trunk is the channel
            last = self._channel(self.fragment.inputs[0])
        ready = last.resolved()
        message = ready.message
        return Trunk(
            ready.df,
            mode,
            tuple(self.inputs),
            self.sources,
            expand or (lambda df: Frame(df, (), message)),
            self.stored,
        )

    # -- inputs ------------------------------------------------------------------------------------

    def _input(self, node: Node, index: int) -> Frame:
        producer = node.inputs[index]
        channel = next(
            (
                c.id
                for c in self.plan.channels
                if c.producer == producer and c.consumer_fragment == self.fragment.id
            ),
            None,
        )
        if channel is None:
            return self.frames[producer]
        return self._channel(channel)

    def _channel(self, id: str) -> Frame:
        if id in self.frames:
            return self.frames[id]
        channel = self.plan.channel(id)
        df = read_channel(
            self.context.spark,
            self.context.rundir.channel(id),
            self.context.schemas[id],
            subscriber=self.fragment.id,
            maxBytes=self.context.config[run_keys.MAX_BATCH_BYTES],
            tasks=int(self.context.spark.conf.get("spark.sql.shuffle.partitions", "2")),
        )
        self.inputs.append(id)
        stateful = self.plan.graph.nodes[self.fragment.stateful] if self.fragment.stateful else None
        lag_ms = 0
        if stateful is not None and isinstance(stateful.operation, Refine):
            lag_ms = stateful.operation.aggregate.window.allowed_lateness_ms
        self.frames[id] = Frame(data_only(df) if self._only_at_end() else with_channel_clock(df, lag_ms))
        self.clocked.add(channel.producer)
        return self.frames[id]

    def _read(self, node: Node) -> Frame:
        operation = node.operation
        assert isinstance(operation, Read)
        source = operation.source
        declared = getattr(source, "event_time", None)
        if is_ingested(source):
            by_arrival = declared is None and not self._event_time_follows(node)
            stored = self._ingested(node, by_arrival=by_arrival)
            if by_arrival:
                return Frame(stored.opened.df)
            opened = stored.opened
        else:
            assert isinstance(source, FileSource | Generator)
            context = self.context.source_context(node.id, self.directory / "sources" / node.id)
            opened = open_source(source, context, says_end=self._says_end(node))
            self.sources[node.id] = opened
            self.inputs.append(node.id)
        frame = Frame(opened.df)
        if declared is not None:
            frame = apply(
                Node(node.id, source_event_time(operation.source), (), node.where),
                [frame],
                self._no_table,
                _ignore,
            )
        if self.fragment.stateful is None or self._only_at_end():
            return frame
        if declared is not None:
            return self._with_clock(frame, source_event_time(operation.source).max_disorder_ms)
        if not self._event_time_in_trunk(node):
            # Punctuations enter here, before a flat map multiplies the rows that Spark must look at.
            return self._with_clock(frame, None)
        return frame

    def _ingested(self, node: Node, *, by_arrival: bool) -> Ingested:
        operation = node.operation
        assert isinstance(operation, Read)
        assert is_ingested(operation.source)
        stored = ingested(
            self.context.spark,
            operation.source,
            self.context.rundir.channel(f"source-{node.id}"),
            self.fragment.id,
            by_arrival=by_arrival,
            maxBytes=self.context.config[run_keys.MAX_BATCH_BYTES],
        )
        self.stored[node.id] = stored
        self.inputs.append(node.id)
        self.sources[node.id] = stored.opened
        return stored

    def _event_time_follows(self, node: Node) -> bool:
        """Whether this fragment takes the event time of the source's messages from a column."""
        graph = self.plan.graph
        return any(
            isinstance(graph.nodes[i].operation, EventTime) and node.id in _ancestors(graph.nodes, i)
            for i in self.fragment.processors
        )

    def _event_time_in_trunk(self, node: Node) -> bool:
        graph = self.plan.graph
        return any(
            isinstance(graph.nodes[i].operation, EventTime) and node.id in _ancestors(graph.nodes, i)
            for i in self.fragment.trunk
        )

    def _only_at_end(self) -> bool:
        """Whether the fragment's window is global and emits once: it needs no clock in its plan."""
        stateful = self.plan.graph.nodes[self.fragment.stateful] if self.fragment.stateful else None
        if stateful is None or not isinstance(stateful.operation, Aggregate):
            return False
        window = stateful.operation.window
        return window.kind == "global" and window.emission == "discarding"

    def _says_end(self, node: Node) -> bool:
        """Whether the source's last batch can itself say the end: its event time is assigned at once."""
        assert isinstance(node.operation, Read)
        source = node.operation.source
        if self.fragment.stateful is None or self._only_at_end():
            return False
        if not isinstance(source, FileSource) or not source.bounded:
            return False
        after = self.plan.graph.consumers(node.id)
        return source.event_time is not None or isinstance(after[0].operation, EventTime)

    def _with_clock(self, frame: Frame, disorder_ms: int | None) -> Frame:
        frame = frame.resolved()
        df = frame.df
        if PUNCT in df.columns:
            return Frame(with_end(df, TS, disorder_ms or 0), (), frame.message)
        if TS not in df.columns:
            df = df.withColumn(TS, F.timestamp_millis(F.lit(0)))
        moves = disorder_ms is not None
        with_clock = union_clock(
            df, self.context.spark, self.clock_path, TS, disorder_ms or 0, data_moves_clock=moves
        )
        self.inputs.append(None)
        return Frame(with_clock if frame.timed else with_clock.drop(TS), (), frame.message)

    # -- operators ---------------------------------------------------------------------------------

    def _stateless(self, node: Node) -> Frame:
        if isinstance(node.operation, Read):
            return self._read(node)
        inputs = [
            self._input(node, i)
            for i, up in enumerate(node.inputs)
            if not isinstance(self.plan.graph.nodes[up].operation, Table)
        ]
        if isinstance(node.operation, Process):
            return stateless_task(node, inputs, clock_ms=None, run_id=self.context.run_id)
        frame = apply(node, inputs, self.context.table, self.context.report(node.id))
        if isinstance(node.operation, EventTime) and self.fragment.stateful and not self._only_at_end():
            frame = self._with_clock(frame, node.operation.max_disorder_ms)
        return frame

    def _stateful(self, node: Node) -> tuple[DataFrame, str, Callable[[DataFrame], Frame] | None]:
        inputs = [self._input(node, i) for i in range(len(node.inputs))]
        report = self.context.report(node.id)
        match node.operation:
            case Aggregate():
                df, mode = windowed.aggregate(node, inputs[0], report)
                return df, mode, None
            case Refine():
                df, mode = windowed.refine(node, inputs[0])
                return df, mode, None
            case Deduplicate():
                return windowed.deduplicate(node, inputs[0]), "append", None
            case JoinStream():
                return windowed.join_streams(node, inputs[0], inputs[1]), "append", None
            case Fold():
                df, expand = fold(node, inputs[0], report)
                return df, "append", expand
            case Process():
                df, expand = stateful_task(node, inputs)
                return df, "append", expand
            case other:
                raise InternalError(f"{type(other).__name__} keeps no state", where=node.id)

    def _no_table(self, id: str) -> DataFrame:
        raise InternalError("event time needs no table", where=id)


def source_event_time(source: object) -> EventTime:
    """The event time that a source declares (`event_time=`, `max_disorder=`) as an operation."""
    from drivetrain.api.columns import col
    from drivetrain.api.durations import milliseconds

    disorder = getattr(source, "max_disorder", None) or "0 s"
    return EventTime(col(str(source.event_time)), milliseconds(disorder, "max_disorder"))  # type: ignore[attr-defined]


def without_bad(df: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """A batch without the messages that could not be processed, and those, if the batch can have any."""
    if BAD not in df.columns:
        return df, None
    return df.where(F.col(BAD).isNull()).drop(BAD), df.where(F.col(BAD).isNotNull())


def _ignore(_how: How, _why: str) -> None:
    """The plan already says how a source is read."""


def _ancestors(nodes: Mapping[str, Node], id: str) -> set[str]:
    found: set[str] = set()
    stack = [id]
    while stack:
        for up in nodes[stack.pop()].inputs:
            if up not in found:
                found.add(up)
                stack.append(up)
    return found
