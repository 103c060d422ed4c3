"""Runs one batch of a fragment again, separately from the fragment's own query, to recompute its messages.

Problem: messages that a fragment wrote to a channel are lost. The fragment itself has continued, or has
ended, and must not be stopped, nor write anything twice.

Design: Spark keeps, for the last batches, their offsets and the versions of the state before them
(`spark.sql.streaming.minBatchesToRetain`). A copy of the checkpoint that ends before the batch, but has its
offsets, is what a crash in the middle of the batch would have left: a query that is started on it runs
exactly that batch, with the same rows, state and watermark. The copy has its own id
(otherwise Spark would stop the fragment's query) and its files are links. The query ends with an error as
soon as the messages are written, so it never plans another batch.

The final batch, in which Tasks learn of the end, has no offsets: it is empty, and runs as in the fragment.

What if we die here: everything is in its own directory, which the next repair deletes, and segments that no
entry names, which it deletes too.

Invariants:

1. The fragment's own directory does not change, no sink is written, no position recorded.
2. The result depends only on the checkpoint and the inputs; a changed input is an error.

Called by `repair`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame

from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.plan.plan import Fragment, PlannedChannel
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.channel.segments import REMADE
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.state.linked_copy import link_file
from drivetrain.spark.batch.batch import Batch
from drivetrain.spark.batch.branches import Branches
from drivetrain.spark.batch.fragment_query import BatchFailedError
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.query_engine import QueryEngine
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.session.offset_log import batch_numbers, entries_after, read_offsets
from drivetrain.spark.session.spark_errors import translated

_VERSIONED = re.compile(r"(\d+)(_[^.]*)?(\..*)?")


class LostForGoodError(UserError):
    """Messages are lost and cannot be repaired: the batch that produced them, or its input, is gone."""

    code = "lost-for-good"
    exit_code = 4


class _WrittenError(RuntimeError):
    """Ends the query: its one batch is written."""


class BatchRerun:
    """Batch `batch_id` of `fragment`, to be run in the directory `aside`, which must not exist.

    Raises LostForGoodError when the fragment's checkpoint does not reach back to it.
    """

    def __init__(
        self, context: CompileContext, engine: QueryEngine, fragment: Fragment, batch_id: int, aside: Path
    ) -> None:
        self._context = context
        self._engine = engine
        self._fragment = fragment
        self._batch_id = batch_id
        self._checkpoint = aside / "checkpoint"
        own = context.rundir.fragment(fragment.id) / "checkpoint"
        known = batch_numbers(own / "offsets")
        self._is_final = bool(known) and batch_id == max(known) + 1
        if not self._is_final:
            self._refuse_forgotten(known)
            cut_back(own, self._checkpoint, batch_id)
        self._trunk, compiled = engine.compile(context, fragment, aside)
        letters = ChannelStore(context.rundir.dead_letters(fragment.id))
        self._branches = Branches(context, fragment, compiled, {}, {}, letters, Counts())
        self._made: list[Segment] | None = None
        self._error: BaseException | None = None

    def inputs(self) -> dict[str, tuple[int, int]]:
        """The entries that the batch reads, as [start, end), by the id of the channel or stored source."""
        if self._is_final:
            return {}
        starts, ends = (
            entries_after(self._checkpoint, batch, self._trunk.inputs)
            for batch in (self._batch_id - 1, self._batch_id)
        )
        return {id: (starts.get(id, 0), end) for id, end in ends.items()}

    def segments(
        self, channel: PlannedChannel, store: ChannelStore, clock_ms: int | None
    ) -> Steps[list[Segment]]:
        """Run the batch, in steps, and write its messages for `channel` as segments that no entry names yet.

        `clock_ms` is the fragment's clock before the batch. Raises `MessageLossError` when the batch's input
        is damaged, `InputError` when a source has changed.
        """
        if self._is_final:
            batch = Batch(self._branches.empty(), self._batch_id, FINAL_CLOCK_MS, final=True)
            return self._branches.write_again(batch, channel, store, REMADE)

        def on_batch(df: DataFrame, batch_id: int) -> None:
            try:
                self._check_sources()
                self._made = self._branches.write_again(Batch(df, batch_id, clock_ms), channel, store, REMADE)
            except BaseException as error:  # noqa: BLE001 - raised by the generator that waits for the query
                self._error = error
            raise BatchFailedError(f"batch {batch_id} again") from _WrittenError()

        name = f"{self._context.plan.application}/{self._fragment.id}, batch {self._batch_id} again"
        query = self._engine.start(self._trunk, name, self._checkpoint, on_batch)
        try:
            while query.is_active:
                yield
        finally:
            query.stop()
            self._branches.release()
        if self._made is None:
            raise translated(self._error or query.exception() or UnavailableError("Spark stopped the query"))
        return self._made

    def _check_sources(self) -> None:
        _, offsets = read_offsets(self._checkpoint / "offsets" / str(self._batch_id))
        for id, offset in zip(self._trunk.inputs, offsets, strict=False):
            if id is not None and id in self._trunk.sources:
                self._trunk.sources[id].check(offset)

    def _refuse_forgotten(self, known: list[int]) -> None:
        needed = {self._batch_id, max(0, self._batch_id - 1)}
        if needed <= set(known):
            return
        raise LostForGoodError(
            "lost messages cannot be repaired: Spark has deleted its record of the batch that wrote them",
            where=f"fragment {self._fragment.id}, batch {self._batch_id}",
            expected="a batch in the fragment's checkpoint",
            got=f"batches {min(known)} to {max(known)}" if known else "a checkpoint without batches",
            remedy="restore the damaged files from a backup, or start over with --fresh",
        )


def cut_back(checkpoint: Path, target: Path, batch_id: int, *, with_state: bool = True) -> None:
    """Make `target` the checkpoint that a crash within batch `batch_id` would have left.

    A running query may add to `checkpoint` meanwhile, and delete old files. A query without a stateful
    operator needs no state.
    """
    for folder, batches in (("offsets", (batch_id - 1, batch_id)), ("commits", (batch_id - 1,))):
        (target / folder).mkdir(parents=True)
        for number in batches:
            with suppress(FileNotFoundError):
                shutil.copy(checkpoint / folder / str(number), target / folder / str(number))
    (target / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    folders: list[tuple[str, int | None]] = [("sources", None)]
    if with_state:
        folders.append(("state", batch_id))
    for folder, newest in folders:
        for path, _, names in os.walk(checkpoint / folder):
            into = target / Path(path).relative_to(checkpoint)
            into.mkdir(parents=True)
            for name in names:
                if not name.startswith(".") and not _is_later(name, newest):
                    link_file(Path(path) / name, into / name)


def _is_later(name: str, newest: int | None) -> bool:
    version = _VERSIONED.fullmatch(name)
    return newest is not None and version is not None and int(version[1]) > newest
