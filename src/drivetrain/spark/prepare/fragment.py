"""One fragment as one Spark streaming query: its trunk as a plan, its branches as work on each batch.

The trunk (inputs, the stateless prefix, the stateful operator) is compiled once and belongs to Spark's
checkpoint. The branches are compiled per batch inside `foreachBatch`, on ordinary DataFrames, so they
are not part of any state. See `branches` for them and `run` for running the whole application.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.connectors.application_stream import ApplicationStream
from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import How
from drivetrain.api.sources import is_stored_first
from drivetrain.config.catalog import channel as channel_keys
from drivetrain.config.catalog import run as run_keys
from drivetrain.connectors.opening import open_source
from drivetrain.core.plan.plan import Fragment
from drivetrain.core.replay.replay import source_time
from drivetrain.runtime.channel.columns import BAD, PART, PUNCT, TS
from drivetrain.runtime.checkpoints.snapshots import RELEASED
from drivetrain.spark.channel.clocked import data_only, union_clock, with_channel_clock, with_end
from drivetrain.spark.channel.source import read_channel
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.named_outputs import divided
from drivetrain.spark.compile.operators import compile_stateful, compile_stateless
from drivetrain.spark.compile.surroundings import StatefulPlan
from drivetrain.spark.connector.source import OpenedSource
from drivetrain.spark.measure.batch_limit import FILE as BATCH_SHARE
from drivetrain.spark.prepare.channel_streams import ChannelStreams
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.event_times import can_have_end_row, event_time_follows, gets_event_time
from drivetrain.spark.prepare.needed_columns import needed_columns
from drivetrain.spark.prepare.outside_stream import outside, stream_of
from drivetrain.spark.prepare.plan_order import channel_from, in_plan_order
from drivetrain.spark.prepare.reduced_sources import (
    ReducedPlan,
    over_partial_results,
    over_partial_results_of_channel,
    reduction_of,
)
from drivetrain.spark.prepare.replay_filter import since, skipped_name
from drivetrain.spark.prepare.source_clock import partitions_of, with_newest_observed
from drivetrain.spark.prepare.source_store import Retention
from drivetrain.spark.prepare.stored_sources import StoredInput, StoreStart, open_stored
from drivetrain.spark.prepare.trunk import CLOCK, Trunk, newest_name, tells_only_at_end
from drivetrain.spark.session.dataframe_calls import filtered, without_columns
from drivetrain.spark.session.spark_errors import refusals_named
from drivetrain.spark.state.state_description import note_operator
from drivetrain.spark.state.state_migration import require_migratable


class TrunkCompiler:
    """Compiles the trunk of one fragment.

    With `aside` it is for a query that runs a batch again, in that directory, separately from the fragment's
    own: it reads the same inputs, but records no positions.
    """

    def __init__(self, context: CompileContext, fragment: Fragment, aside: Path | None = None) -> None:
        self.context = context
        self.fragment = fragment
        self.plan = context.plan
        self.frames: dict[str, Frame] = {}
        self.sources: dict[str, OpenedSource] = {}
        self.stored: dict[str, StoredInput] = {}
        self.inputs: list[str | None] = []
        self._channels: dict[str, DataFrame] = {}
        self._read_channels: dict[tuple[str, bool], Frame] = {}
        self.directory = context.rundir.fragment(fragment.id)
        self.query_directory = aside or self.directory
        self.subscriber = {"subscriber": fragment.id} if aside is None else {}
        self.released = {"released": str(self.directory / RELEASED)} if aside is None else {}
        self._streams = ChannelStreams(context, fragment, self.limit_path, self.subscriber, self.released)
        self.observed: list[str] = []
        self.skipping: list[str] = []
        self.clock_paths: dict[str, str] = {}
        self._state_inputs: list[Frame] = []
        self._counted: list[str] = []
        # A replay drops messages one by one.
        self._reduction = None if context.replay else reduction_of(self.plan.graph, fragment)

    @property
    def clock_path(self) -> str:
        """The path at which the engine publishes the clock of plain sources."""
        return str(self.query_directory / CLOCK)

    @property
    def limit_path(self) -> str:
        """The path at which the engine stores how much of the waiting input the next batch may take."""
        return str(self.query_directory / BATCH_SHARE)

    def compile(self) -> Trunk:
        """Build the trunk; raises the error of the operator that Spark refuses."""
        state: StatefulPlan | None = None
        last: Frame | None = None
        for node, channel in in_plan_order(self.plan, self.fragment):
            with refusals_named(str(node)):
                if channel is not None:
                    self._channel(channel, is_timed_anew=self._is_timed_anew(node))
                    continue
                if node.id == self.fragment.stateful:
                    state = self._stateful(node)
                    last = Frame(state.df)
                else:
                    last = self._stateless(node)
            self.frames[node.id] = divided(last)
        if last is None:  # a fragment after a cut: its only trunk is the channel
            last = self._channel(self.fragment.inputs[0])
        ready = last.resolved()
        message = ready.message
        return Trunk(
            ready.df,
            "append" if state is None else state.mode,
            tuple(self.inputs),
            self.sources,
            (state and state.expand) or (lambda df: Frame(df, (), message)),
            self.stored,
            tuple(self.observed),
            tuple(self.skipping),
            self.clock_paths,
            lambda: tuple(frame.resolved().df.schema for frame in self._state_inputs),
            self._may_be_direct(),
            frozenset(self._counted),
        )

    def _may_be_direct(self) -> bool:
        """Whether the trunk is one source whose columns can be read one by one, and has no state."""
        sources = list(self.sources.values())
        is_one = len(sources) == len(self.inputs) == 1 and not self.stored
        return is_one and self.fragment.stateful is None and sources[0].reads_columns

    # -- inputs ------------------------------------------------------------------------------------

    def _input(self, node: Node, index: int) -> Frame:
        producer = node.inputs[index]
        channel = channel_from(self.plan, self.fragment, producer)
        if channel is None:
            return self.frames[producer]
        return self._channel(channel, is_timed_anew=self._is_timed_anew(node))

    def _channel(self, id: str, *, is_timed_anew: bool = False) -> Frame:
        if (id, is_timed_anew) in self._read_channels:
            return self._read_channels[id, is_timed_anew]
        if id not in self._channels:
            self._channels[id] = self._streams.messages(id)
            self.inputs.append(id)
        df = self._channels[id]
        frame = self._read_channels[id, is_timed_anew] = self._clocked(df, is_timed_anew=is_timed_anew)
        return frame

    def _clocked(self, df: DataFrame, *, is_timed_anew: bool) -> Frame:
        """The messages of a channel, with its clock if they keep their timestamps."""
        stateful = self.plan.graph.nodes[self.fragment.stateful] if self.fragment.stateful else None
        lag_ms = 0 if stateful is None else stateful.operation.input_lag_ms
        is_clocked = not (is_timed_anew or self._only_at_end())
        return Frame(with_channel_clock(df, lag_ms) if is_clocked else data_only(df))

    def _read(self, node: Node) -> Frame:
        source, declared = node.operation.stream_source, node.operation.assigned_time
        assert source is not None
        if isinstance(source, ApplicationStream):
            return self._outside(node, source)
        if is_stored_first(source):
            follows = event_time_follows(self.plan.graph, node.id, self.fragment.processors)
            by_arrival = declared is None and not follows
            stored = self._ingested(node, by_arrival=by_arrival)
            if by_arrival:
                return self._since(node, Frame(stored.opened.df))
            opened = stored.opened
        else:
            context = self.context.source_context(node.id, self.directory / "sources" / node.id)
            # Spark numbers the sources of a query in the order of its plan, in which this compiles them.
            spark_log = self.query_directory / "checkpoint" / "sources" / str(len(self.inputs))
            context = dataclasses.replace(context, spark_log=str(spark_log), limit_path=self.limit_path)
            context = dataclasses.replace(context, reduction=self._reduction)
            opened = open_source(source, context, has_end_row=self._has_end_row(node))
            self.sources[node.id] = opened
            self.inputs.append(node.id)
            self.context.report(node.id)("source", opened.how_read)
        frame = Frame(opened.df)
        if declared is not None:
            around = dataclasses.replace(
                self.context.surroundings(node.id),
                report=_ignore,
                quotes_messages=not opened.reads_columns,
            )
            frame = compile_stateless(Node(node.id, declared, (), node.where), [frame], around)
            frame = self._since(node, frame)
        if self.fragment.stateful is None and declared is not None:
            return self._observe_newest(node, frame)
        if self.fragment.stateful is None or self._only_at_end():
            return frame
        if self._time_follows(node.id):
            return frame
        if declared is not None:
            return self._with_clock(frame, declared.max_disorder_ms, node.id)
        # Punctuations enter here, before a flat map multiplies the rows that Spark must process.
        return self._with_clock(frame, None)

    def _ingested(self, node: Node, *, by_arrival: bool) -> StoredInput:
        source = node.operation.stream_source
        assert is_stored_first(source)
        stored = open_stored(
            self.context.source_context(node.id, self.directory / "sources" / node.id),
            source,
            self.context.rundir.store(node.id),
            time=source_time(self.plan.graph, node.id),
            by_arrival=by_arrival,
            kept=Retention(self.context.config[run_keys.KEEP_BYTES], self.context.config[run_keys.KEEP_AGE]),
            window_bytes=self.context.config[channel_keys.WINDOW_BYTES],
            begin=self._begin(node),
            maxBytes=self.context.config[run_keys.MAX_BATCH_BYTES],
            maxRows=self.context.config[run_keys.MAX_BATCH_ROWS],
            limit=self.limit_path,
            **self.subscriber,
        )
        self.stored[node.id] = stored
        self.inputs.append(node.id)
        self.sources[node.id] = stored.opened
        return stored

    def _outside(self, node: Node, source: ApplicationStream) -> Frame:
        """The stream of another application, with its clock unless the messages get other timestamps."""
        where = stream_of(source, self.context.rundir, node.id)
        spark = self.context.spark
        df = read_channel(
            spark,
            where.channel,
            where.schema,
            **({"subscriber": where.id, "outside": "true"} if self.subscriber else {}),
            maxBytes=self.context.config[run_keys.MAX_BATCH_BYTES],
            limit=self.limit_path,
            tasks=int(spark.conf.get("spark.sql.shuffle.partitions", "2")),
        )
        stored = self.stored[node.id] = outside(df, where, node.id)
        self.inputs.append(node.id)
        self.sources[node.id] = stored.opened
        return self._clocked(df, is_timed_anew=self._is_timed_anew(node))

    def _begin(self, node: Node) -> StoreStart | None:
        """Where the first query of a replay begins in a source's store."""
        replay, offsets = self.context.replay, self.query_directory / "checkpoint" / "offsets"
        if replay is None or (offsets.is_dir() and any(offsets.iterdir())):
            return None
        return StoreStart(replay.from_ms, str(node))

    def _since(self, node: Node, frame: Frame) -> Frame:
        """The frame of a processor that assigns event time, without messages older than a replay."""
        replay = self.context.replay
        if replay is None or not replay.drops_at(node.id):
            return frame
        self.skipping.append(node.id)
        return since(frame, replay.from_ms, skipped_name(node.id), str(node))

    def _is_timed_anew(self, node: Node) -> bool:
        """Whether the input of a processor gets another event time before it reaches the state."""
        has_state = self.fragment.stateful is not None
        return has_state and gets_event_time(self.plan.graph, node.id, self.fragment.trunk)

    def _time_follows(self, id: str) -> bool:
        """Whether a processor of the trunk assigns event time to messages from processor `id`."""
        return event_time_follows(self.plan.graph, id, self.fragment.trunk)

    def _only_at_end(self) -> bool:
        """Whether the fragment's window is global and emits once: it needs no clock in its plan."""
        return tells_only_at_end(self.plan, self.fragment.id)

    def _has_end_row(self, node: Node) -> bool:
        if self.fragment.stateful is None or self._only_at_end():
            return False
        return can_have_end_row(self.plan.graph, node.id, self.fragment.trunk)

    def _with_clock(self, frame: Frame, disorder_ms: int | None, assigned_by: str = "") -> Frame:
        """The frame after Spark's watermark; `assigned_by` is the processor that assigns its event time."""
        frame = frame.resolved()
        df = frame.df
        if disorder_ms is not None and PART in df.columns:
            partitions = partitions_of(self.plan.graph, assigned_by, self.sources)
            if partitions is not None:
                return self._with_partition_clocks(frame, assigned_by)
            df = df.drop(PART)
        if PUNCT in df.columns:
            return Frame(with_end(df, TS, disorder_ms or 0), (), frame.message)
        if TS not in df.columns:
            df = df.withColumn(TS, F.timestamp_millis(F.lit(0)))
        moves, path = disorder_ms is not None, self.clock_path
        if moves and self._has_several_clocks():
            path = self.clock_paths[assigned_by] = f"{self.clock_path}-{assigned_by}"
            self.observed.append(assigned_by)
            graph, name = self.plan.graph, newest_name(assigned_by)
            df = with_newest_observed(Frame(df), assigned_by, name, graph, self.sources).df
        with_clock = union_clock(df, self.context.spark, path, TS, disorder_ms or 0, data_moves_clock=moves)
        self.inputs.append(None)
        return Frame(with_clock if frame.timed else with_clock.drop(TS), (), frame.message)

    def _has_several_clocks(self) -> bool:
        """Whether the clock of the state is the smallest of several, which Spark does not keep apart."""
        channels = sum(channel.id in self.fragment.inputs for channel in self.plan.channels)
        nodes = [self.plan.graph.nodes[id] for id in self.fragment.trunk]
        outside = sum(isinstance(node.operation.stream_source, ApplicationStream) for node in nodes)
        return channels + outside + sum(node.operation.assigned_time is not None for node in nodes) > 1

    def _with_partition_clocks(self, frame: Frame, id: str) -> Frame:
        """Only the published clock moves the watermark: the largest timestamp is of one partition only."""
        path = self.clock_paths[id] = f"{self.clock_path}-{id}"
        self.observed.append(id)
        frame = with_newest_observed(frame, id, newest_name(id), self.plan.graph, self.sources)
        self.inputs.append(None)
        clocked = union_clock(frame.df, self.context.spark, path, TS, 0, data_moves_clock=False)
        return Frame(clocked, (), frame.message)

    # -- operators ---------------------------------------------------------------------------------

    def _stateless(self, node: Node) -> Frame:
        if node.operation.stream_source is not None:
            return self._read(node)
        inputs = [
            self._input(node, i)
            for i, up in enumerate(node.inputs)
            if not self.plan.graph.nodes[up].operation.is_table
        ]
        frame = self._since(node, compile_stateless(node, inputs, self.context.surroundings(node.id)))
        time = node.operation.assigned_time
        if time is not None and self.fragment.stateful and not self._only_at_end():
            if self._time_follows(node.id):
                return frame
            frame = self._with_clock(frame, time.max_disorder_ms, node.id)
        if time is not None and self.fragment.stateful is None:
            frame = self._observe_newest(node, frame)
        return frame

    def _observe_newest(self, node: Node, frame: Frame) -> Frame:
        """Observe the timestamps, which are the clock of a fragment without state.

        After a union their sources could not be distinguished. The branches observe the trunk's last
        processor.
        """
        if node.id == self.fragment.trunk[-1]:
            return frame
        self.observed.append(node.id)
        return with_newest_observed(frame, node.id, newest_name(node.id), self.plan.graph, self.sources)

    def _stateful(self, node: Node) -> StatefulPlan:
        if self.query_directory == self.directory:
            require_migratable(self.context.spark, self.directory, node)
            note_operator(self.directory, node)
        channel = self._only_channel(node)
        reduced = None if channel is None else self._reduced_channel(node, channel)
        if reduced is None:
            inputs = self._state_inputs = [self._input(node, i) for i in range(len(node.inputs))]
            reduced = over_partial_results(node, self.fragment.trunk[0], self.sources, self._reduction)
        if reduced is not None:
            self._counted.append(reduced.input)
            return reduced.plan
        if channel is not None:
            inputs = self._needed(node, channel, inputs)
        return compile_stateful(node, inputs, self.context.surroundings(node.id, pictures=self._pictures))

    def _reduced_channel(self, node: Node, channel: str) -> ReducedPlan | None:
        """The plan of the stateful processor over partial results of a channel, if it needs no messages."""
        columns, read = self.context.schemas[channel], self._streams.partial_results
        reduced = over_partial_results_of_channel(node, channel, columns, read)
        if reduced is not None:
            self.inputs.append(channel)
        return reduced

    def _needed(self, node: Node, channel: str, inputs: list[Frame]) -> list[Frame]:
        """The input of the stateful processor without columns of the channel that it does not use."""
        columns = needed_columns(node, inputs[0].df, self.context.schemas[channel])
        if columns is None:
            return inputs
        return [self._clocked(self._streams.messages(channel, columns), is_timed_anew=False)]

    def _only_channel(self, node: Node) -> str | None:
        """The channel that the fragment begins with, if the stateful processor is all that reads it."""
        id, *others = self.fragment.inputs
        return id if self.fragment.trunk == (node.id,) and not others else None

    @property
    def _pictures(self) -> str | None:
        """Where pictures of states are kept; None for a batch that runs again separately."""
        return str(self.directory) if self.query_directory == self.directory else None


def without_bad(df: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """A batch without the messages that failed, and those messages, if the batch can have any."""
    if BAD not in df.columns:
        return df, None
    good = without_columns(filtered(df, f"{BAD} IS NULL"), BAD)
    return good, filtered(df, f"{BAD} IS NOT NULL")


def _ignore(_how: How, _why: str) -> None:
    """The plan already shows how a source is read."""
