"""The branches of two versions on one batch, while the old one hands over to the new one at a time T.

Problem: in one batch the old version gets the messages before T and the new one the others. An output that
both have is written once for each batch, because it skips a batch that it has.

Design: the frames of both versions are built from the same batch (`branch_frames`). The new version's come
first. The frames are kept at the place where messages have their event time (`core.change.handover_places`),
and both versions continue from there, each with its part; so everything before that place runs once. An
output gets the union of both parts, or the part of the version that has it. Spark observes how many messages
the new version gets.

Invariants:

1. Every message goes to exactly one version.
2. No processor before the place where messages are divided runs twice in a batch.

Called by `spark_engine`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack
from typing import Final, Self

from pyspark.sql import DataFrame, Observation
from pyspark.sql.types import StructType

from drivetrain.api.graphs.graph import Node
from drivetrain.core.change.handover_places import HandoverError, Places, places
from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.plan.plan import Fragment, PlannedChannel
from drivetrain.errors import InternalError
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import SEGMENTS
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.batch import Batch
from drivetrain.spark.batch.branch_frames import BranchNodes
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.spark_branches import SparkBranches, SparkFrames, routed
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.connector.newest import Newest
from drivetrain.spark.measure.small_batches import observed
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.trunk import Trunk
from drivetrain.spark.session.dataframe_calls import filtered, observing
from drivetrain.spark.session.spark_text import quoted


class HandoverBranches:
    """The branches of a fragment in the version of `context`, and in the one that hands over to it."""

    def __init__(self, context: CompileContext, fragment: Fragment, trunk: Trunk) -> None:
        handing_over = context.handing_over
        assert handing_over is not None
        old = handing_over.context
        before = next(f for f in old.plan.fragments if f.id == fragment.id)
        self.at_ms: Final = handing_over.at_ms
        self.places: Final = places(context.plan, fragment)
        self.new: Final = SparkBranches(dataclasses.replace(context, handing_over=None), fragment, trunk)
        self.old: Final = SparkBranches(old, before, trunk)

    def frames(self, batch: Batch) -> HandoverFrames:
        """Their DataFrames for a batch; released at the end."""
        return HandoverFrames(self, batch)

    def release(self) -> None:
        """Free what large functions of both versions take; they are computed again if a batch follows."""
        self.new.release()
        self.old.release()

    def empty(self) -> DataFrame:
        """A batch of the trunk without messages."""
        return self.new.empty()

    def advance(self, df: DataFrame) -> int:
        """Run a batch only for Spark's state; returns the number of rows from the trunk."""
        return self.new.advance(df)

    def schemas(self) -> dict[str, StructType]:
        """The schema of each channel, from an empty batch; Spark checks every operator, and each union."""
        schemas = self.new.schemas()
        with self.frames(Batch(self.empty(), -1, None)) as frames:
            for node in self.new.of.nodes:
                if node.operation.target is not None:
                    _ = frames.for_sink(node).schema
        return schemas


class _SideFrames(SparkFrames):
    """The frames of one version, which gets the messages from `at_ms` on, or those before.

    `given` are the frames of what both versions share, which the other version has built.
    """

    def __init__(
        self,
        branches: SparkBranches,
        of: BranchNodes,
        batch: Batch,
        divided: Places,
        at_ms: int,
        given: Mapping[str, Frame] | None,
    ) -> None:
        super().__init__(branches, of, batch)
        self.whole: dict[str, Frame] = {}
        """The frames that both versions share, before the messages are divided."""
        self.taken: list[Observation] = []
        self._places: Final = divided
        self._at_ms: Final = at_ms
        self._given: Final = given

    def _root(self) -> Frame:
        id = self._of.roots[0]
        if self._given is None:
            self.whole[id] = super()._root()
        else:
            self.whole[id] = self._given[id]
        return self._part(id)

    def _counted(self, root: Frame) -> Frame:
        return root  # the messages of the new version are counted where they are divided

    def _made(self, node: Node) -> Frame:
        if node.id not in self._places.shared:
            return super()._made(node)
        self.whole[node.id] = super()._made(node) if self._given is None else self._given[node.id]
        return self._part(node.id)

    def _part(self, id: str) -> Frame:
        """The part of a shared frame that this version gets."""
        whole = self.whole[id]
        if id not in self._places.at:
            return whole
        if self._given is None:
            kept = whole.resolved()
            self._persisted.append(kept.df.cache())
            whole = self.whole[id] = Frame(self._persisted[-1], (), kept.message, kept.with_outputs)
        if TS not in whole.df.columns or whole.with_outputs is not None:
            raise InternalError(f"the messages of {id} cannot be divided by their time")
        is_new = f"{TS} >= timestamp_millis({self._at_ms})"
        if self._given is not None:
            return Frame(filtered(whole.df, f"NOT {is_new}"), (), whole.message)
        observation = Observation()
        self.taken.append(observation)
        mine = observing(filtered(whole.df, is_new), observation, "count(1) AS taken")
        return Frame(mine, (), whole.message)


class HandoverFrames:
    """The DataFrames of both versions for one batch, output by output."""

    def __init__(self, of: HandoverBranches, batch: Batch) -> None:
        self._of: Final = of
        self._open: Final = ExitStack()
        self._new: Final = _SideFrames(of.new, of.new.of, batch, of.places, of.at_ms, None)
        self._old: Final = _SideFrames(of.old, of.old.of, batch, of.places, of.at_ms, self._new.whole)

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            entered.enter_context(self._new)
            entered.enter_context(self._old)
            self._open.push(entered.pop_all())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def compute(self, ids: Set[str] | None = None) -> None:
        """Compute the messages of some processors of either version; None: all that outputs read."""
        self._new.compute(ids)
        self._old.compute(ids)

    def for_sink(self, node: Node) -> DataFrame:
        """The messages of a sink from the versions that have it."""
        parts = [frames[own.inputs[0]] for frames, own in self._with(node)]
        if len(parts) == 1:
            return routed(node, parts[0])
        return routed(node, _union(parts))

    def _with(self, node: Node) -> Iterator[tuple[_SideFrames, Node]]:
        """The versions that have results for an output, each with its own processor of that name.

        Messages without a time are not divided: the new version handles all of them.
        """
        for frames, branches in ((self._new, self._of.new), (self._old, self._of.old)):
            own = next((one for one in branches.of.nodes if one.id == node.id), None)
            if own is not None and (frames is self._new or own.id not in self._of.places.shared):
                yield frames, own

    def segments(self, channel: PlannedChannel, store: ChannelStore, folder: str = SEGMENTS) -> list[Segment]:
        """The messages for a channel, written as new segments."""
        own = next(c for c in self._of.old.of.channels if c.id == channel.id)
        df = self._new.for_channel(channel)
        if own.producer not in self._of.places.shared - self._of.places.at:
            df = df.unionByName(self._old.for_channel(own))
        return self._new.written(df, channel, store, folder)

    @property
    def has_letters(self) -> bool:
        """Whether there may be dead letters in the batch."""
        return self._new.has_letters or self._old.has_letters

    def letter_segments(self, letters: ChannelStore, number: int, counts: Counts) -> list[Segment]:
        """The dead letters of both versions, written as new segments."""
        self._new.letters += self._old.letters
        self._old.letters.clear()
        return self._new.letter_segments(letters, number, counts)

    def log(self, node: Node) -> None:
        """Write the messages for a `Log` into the log."""
        for frames, own in self._with(node):
            frames.log(own)

    def counts_emitted(self, id: str) -> bool:
        """Whether the messages of a processor are counted as they pass."""
        return self._new.counts_emitted(id) or self._old.counts_emitted(id)

    def add_counts(self, counts: Counts) -> None:
        """Add the observed counts of both versions."""
        self._new.add_counts(counts)
        self._old.add_counts(counts)

    def reached(self) -> int:
        """How many messages the new version has got."""
        return sum(observed(one).get("taken") or 0 for one in self._new.taken)

    def newest(self) -> dict[str, Newest]:
        """The largest timestamps in the batch, for each event time that it assigned."""
        return self._new.newest()


def _union(parts: list[Frame]) -> Frame:
    new, old = (part.resolved() for part in parts)
    columns, before = _columns(new), _columns(old)
    if columns != before:
        raise HandoverError(
            "a sink would get other columns from the new version, and both write to it in one batch",
            expected=", ".join(f"{name} {kind}" for name, kind in sorted(before.items())),
            got=", ".join(f"{name} {kind}" for name, kind in sorted(columns.items())),
            remedy="give the messages to another sink, or use --at now",
        )
    own = [quoted(name) for name in (*new.columns, TS)]
    return Frame(new.df.selectExpr(*own).union(old.df.selectExpr(*own)), (), new.message)


def _columns(frame: Frame) -> dict[str, str]:
    kinds = {field.name: field.dataType.simpleString() for field in frame.df.schema.fields}
    return {name: kinds[name] for name in frame.columns}
