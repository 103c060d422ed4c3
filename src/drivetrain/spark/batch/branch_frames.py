"""The frames of one batch: every processor after the trunk, as a DataFrame for its consumers.

Problem: branches are compiled again for each batch. Several consumers may read one processor, messages that
made a function fail go to the dead letters, and counts and timestamps must not need a second
pass over the messages.

Design: `BranchFrames` is built from a batch and closed after it. A frame that several consumers read is
persisted until then. Spark observes counts and timestamps while the messages pass; they can be read after
an action has run (`newest`, `add_counts`).

Invariants:

1. No processor runs twice in a batch.

Called by `spark_branches`; `realtime_query` builds one plan of the same nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Self

from pyspark.sql import DataFrame, Observation

from drivetrain.api.graphs.graph import Node
from drivetrain.core.plan.plan import Fragment, PlannedChannel
from drivetrain.runtime.channel.columns import BAD, TS
from drivetrain.spark.batch.batch import Batch
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.compile.compiled_parts import CompiledParts, with_part_schema
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.named_outputs import divided
from drivetrain.spark.compile.operators import compile_stateless
from drivetrain.spark.connector.newest import Newest
from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.measure.small_batches import observed
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.fragment import without_bad
from drivetrain.spark.prepare.replay_filter import since
from drivetrain.spark.prepare.source_clock import read_newest, with_newest_observed
from drivetrain.spark.prepare.trunk import Trunk
from drivetrain.spark.prepare.whole_windows import first_whole_ms, is_late, window_size_ms
from drivetrain.spark.session.dataframe_calls import filtered, observing, selected
from drivetrain.spark.session.spark_errors import refusals_named
from drivetrain.spark.session.spark_text import quoted


@dataclass(frozen=True)
class BranchNodes:
    """The parts of a fragment that are compiled for each batch.

    `nodes` are the processors after the trunk, in topological order; `roots` are the ids that stand for the
    trunk's result, `root` is the node of the first; `channels` are those that the fragment writes.
    `may_lack` is the size in ms of windows that may lack messages, in a fragment that was added at run time
    (None: no window may).
    """

    context: CompileContext
    trunk: Trunk
    nodes: Sequence[Node]
    roots: Sequence[str]
    root: Node
    channels: Sequence[PlannedChannel]
    may_lack: int | None = None

    @property
    def producers(self) -> set[str]:
        """The processors whose messages go into channels."""
        return {channel.producer for channel in self.channels}


def branch_nodes(context: CompileContext, fragment: Fragment, trunk: Trunk) -> BranchNodes:
    """The parts of a fragment that are compiled for each batch."""
    graph = context.plan.graph
    read = [c.producer for c in context.plan.channels if c.consumer_fragment == fragment.id]
    roots = [*fragment.trunk[-1:], *(p for p in read if not fragment.trunk)]
    nodes = [graph.nodes[i] for i in fragment.branches]
    channels = context.plan.outputs(fragment.id)
    late = is_late(context.plan, fragment.id, context.rundir)
    may_lack = window_size_ms(context.plan, fragment) if late else None
    return BranchNodes(context, trunk, nodes, roots, graph.nodes[roots[0]], channels, may_lack)


class BranchFrames:
    """The frames of one batch by processor id; a context manager that releases persisted frames."""

    def __init__(self, of: BranchNodes, batch: Batch, parts: CompiledParts) -> None:
        self.letters: list[tuple[Node, DataFrame]] = []
        """The dead letters of each processor that has a column for them."""
        self._of = of
        self._batch = batch
        self._parts = parts
        self._frames: dict[str, Frame] = {}
        self._newest: dict[str, Observation] = {}
        self._emitted: dict[str, Observation] = {}
        self._skipped: dict[str, Observation] = {}
        self._late: Observation | None = None
        self._not_whole: Observation | None = None
        self._reached: Observation | None = None
        self._persisted: list[DataFrame] = []

    def __enter__(self) -> Self:
        try:
            with self._parts.active():
                self._build()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def __getitem__(self, id: str) -> Frame:
        return self._frames[id]

    @property
    def all(self) -> Mapping[str, Frame]:
        """Every frame by processor id."""
        return self._frames

    def compute(self, ids: Set[str] | None = None) -> None:
        """Compute the messages of some processors; None: all that outputs read, even if they skip some of it.

        The frames stay persisted, since loading the state twice would take long.
        """
        if ids is None:
            ids = {i for node in self._of.nodes if node.operation.ends_stream for i in node.inputs}
            ids |= self._of.producers
        for id in sorted(ids & self._frames.keys()):
            self._persisted.append(self._frames[id].df.persist())
            with computing():
                self._frames[id].df.write.format("noop").mode("overwrite").save()

    # -- after an action -------------------------------------------------------------------------------

    def newest(self) -> dict[str, Newest]:
        """The largest timestamps in the batch, for each event time that it assigned."""
        return {id: read_newest(observed(observation)) for id, observation in self._newest.items()}

    def add_counts(self, counts: Counts) -> None:
        """Add the observed counts: late messages, those older than the replay, emitted ones."""
        if self._late is not None and (late := observed(self._late).get("late")):
            counts.add(counts.late, self._of.root.id, late)
        if self._not_whole is not None:
            left_out = observed(self._not_whole).get("not_whole") or 0
            counts.add(counts.not_whole, self._of.root.id, left_out)
        for id, observation in self._skipped.items():
            counts.add(counts.skipped, id, observed(observation).get("skipped") or 0)
        for id, observation in self._emitted.items():
            counts.add(counts.out, id, observed(observation).get("n") or 0)

    def reached(self) -> int:
        """How many messages have reached the branches, in a batch that is whole; otherwise 0."""
        return 0 if self._reached is None else observed(self._reached).get("n") or 0

    def counts_emitted(self, id: str) -> bool:
        """Whether the messages of a processor are counted as they pass."""
        return id in self._emitted

    # -- building --------------------------------------------------------------------------------------

    def _build(self) -> None:
        settled = self._root()
        for id in self._of.roots:
            self._frames[id] = settled
        for node in self._of.nodes:
            if not node.operation.ends_stream:
                self._frames[node.id] = self._made(node)

    def _root(self) -> Frame:
        """The frame of the trunk, where the branches begin."""
        of, df = self._of, self._batch.df
        if "payload" in df.columns and "late" in df.columns:  # packed by compile.keyed
            self._late = Observation()
            df = observing(df, self._late, "sum(late) AS late")
        root = of.trunk.frame(df)
        if of.root.operation.stream_source is not None and of.root.operation.assigned_time is not None:
            root = self._with_newest_observed(of.root.id, root)
        if of.may_lack is not None:
            root = self._of_whole_windows(root, of.may_lack)
        if self._batch.whole:
            root = self._counted(root)
        return self._settled(of.root, root)

    def _counted(self, root: Frame) -> Frame:
        """The frame with its messages observed: on trial, a batch without any proves nothing."""
        frame, self._reached = root.resolved(), Observation()
        sound = f"count_if({BAD} IS NULL)" if BAD in frame.df.columns else "count(1)"
        return Frame(observing(frame.df, self._reached, f"{sound} AS n"), (), frame.message)

    def _made(self, node: Node) -> Frame:
        """The frame of a processor of the branches."""
        inputs = [self._frames[i] for i in node.inputs if i in self._frames]
        with refusals_named(str(node)):
            return self._settled(node, self._described(node, inputs, self._applied(node, inputs)))

    def _described(self, node: Node, inputs: list[Frame], made: Frame) -> Frame:
        """The frame of a processor with its columns known, if they follow from those of its inputs."""
        if len(inputs) != len(node.inputs) or made.df is inputs[0].df:
            return made  # it reads a table, which may have other columns after a time; or nothing was added
        of = tuple(frame.df.schema for frame in inputs)
        with_part_schema(made.df, (node.id, "columns"), of)
        return made

    def _of_whole_windows(self, root: Frame, size_ms: int) -> Frame:
        """The results of windows that began after the fragment did; the others are counted."""
        context, clock_ms = self._of.context, self._batch.clock_ms
        fragment = context.plan.fragment_of(self._of.root.id).id
        bound_ms = first_whole_ms(context.plan, fragment, context.rundir)
        if bound_ms is None or (clock_ms is not None and clock_ms > bound_ms + size_ms):
            return root
        frame, self._not_whole = root.resolved(), Observation()
        is_whole = f"{TS} > timestamp_millis({bound_ms + size_ms - 1})"
        df = observing(frame.df, self._not_whole, f"count_if(NOT {is_whole}) AS not_whole")
        return Frame(filtered(df, is_whole), (), frame.message)

    def _applied(self, node: Node, inputs: list[Frame]) -> Frame:
        context, batch = self._of.context, self._batch
        around = context.surroundings(node.id, clock_ms=batch.clock_ms, is_last=batch.final)
        frame = compile_stateless(node, inputs, around)
        replay = context.replay
        if replay is not None and replay.drops_at(node.id):
            self._skipped[node.id] = Observation()
            frame = since(frame, replay.from_ms, self._skipped[node.id], str(node))
        if node.operation.assigned_time is not None:
            return self._with_newest_observed(node.id, frame)
        return frame

    def _with_newest_observed(self, id: str, frame: Frame) -> Frame:
        self._newest[id] = Observation()
        of = self._of
        return with_newest_observed(frame, id, self._newest[id], of.context.plan.graph, of.trunk.sources)

    def _settled(self, node: Node, frame: Frame) -> Frame:
        """The frame for its consumers: counted, persisted if there are several, without bad messages."""
        readers = [n for n in self._of.nodes if node.id in n.inputs and not n.operation.is_subscription]
        several = len(readers) + sum(c.producer == node.id for c in self._of.channels) > 1
        passes_on = not several and len(readers) == 1 and not readers[0].operation.ends_stream
        if frame.steps and passes_on and not any(s.dead_letter for s in frame.steps):
            return frame
        frame = frame.resolved()
        if node.operation.is_counted:
            self._emitted[node.id] = Observation()
            counted = observing(frame.df, self._emitted[node.id], "count(1) AS n")
            frame = Frame(counted, (), frame.message)
        df, letters = without_bad(frame.df)
        if several or letters is not None:
            persisted = frame.df.cache()
            self._persisted.append(persisted)
            df, letters = without_bad(persisted)
        if letters is not None:
            self.letters.append((node, letters))
        return divided(Frame(df, (), frame.message))

    def _release(self) -> None:
        for df in self._persisted:
            df.unpersist()


def data_of(frame: Frame) -> DataFrame:
    """The columns of a frame for sinks: those that do not begin with `__`."""
    columns = frame.df.columns
    data = [c for c in columns if not c.startswith("__")]
    return frame.df if len(data) == len(columns) else selected(frame.df, *map(quoted, data))
