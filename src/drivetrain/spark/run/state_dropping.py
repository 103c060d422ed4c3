"""Gives a fragment the state that its next query needs: the one that it has, an empty one, or the former one.

Problem: a version that drops a fragment's state comes into force when one file is written. The first query
of the fragment that is made after that must begin with an empty state, whichever process makes it, and only
the first; one that is made after a rollback must have the former state again.

Design: a mark in the checkpoint has the version that emptied the state (`runtime.state.dropped_state`).
It is compared with the records of the versions when a query is made, before it starts, by the process that
runs the fragment. What if we die here: the next query that is made compares them again.

Invariants:

1. A query with the trunk of a version that drops the state reads none of the former state.
2. A query with the trunk of an earlier version reads none of the new one.

Called by `application_versions`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from drivetrain.api.moments import moment_text
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import InputError
from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.runtime.state.dropped_state import DroppedState
from drivetrain.runtime.state.state_partitions import newest_commit
from drivetrain.spark.batch.newest_bound import NewestBound
from drivetrain.spark.batch.newest_record import NewestRecord
from drivetrain.spark.channel.watermark import clock_of
from drivetrain.spark.prepare.whole_windows import window_size_ms
from drivetrain.spark.session.offset_log import next_watermark_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain.runtime.graph_versions import GraphVersions
    from drivetrain.runtime.run_directory import RunDirectory
    from drivetrain.spark.batch.query_engine import QueryEngine
    from drivetrain.spark.prepare.compile_context import CompileContext


def settle_state(
    context: CompileContext,
    engine: QueryEngine,
    fragment: str,
    number: int,
    newest_ms: Callable[[str], int | None],
) -> str | None:
    """Give a fragment the state for a query that is going to be compiled in `context`, of version `number`.

    `newest_ms` returns the largest timestamp that messages of a fragment may have had. Returns a notice if
    the state is another one now. Raises InputError when a version is damaged, and Spark's errors.
    """
    rundir = context.rundir
    own, stored = DroppedState(rundir.fragment(fragment)), rundir.versions
    known, owed = own.read(), _dropping(stored, number, fragment)
    is_over = known is not None and known.version not in (owed, number)
    if known is None or not is_over or not stored.is_rolled_back(known.version):
        if owed and (known is None or known.version != owed):
            return _dropped(context, engine, fragment, owed, newest_ms(fragment))
        return None
    if known.after < 0 or not own.has_former:  # there was no state yet
        return _dropped(context, engine, fragment, owed or number, newest_ms(fragment))
    with tempfile.TemporaryDirectory(prefix="drivetrain-state-") as place:
        own.restore(engine.empty_state(Path(place), changes=True) if own.lacks_changes else None)
    former = own.read()
    if owed and (former is None or former.version != owed):  # the state is older than the one that is due
        return _dropped(context, engine, fragment, owed, newest_ms(fragment))
    return f"fragment {fragment} has the state again that it had before version {known.version}"


def _dropped(
    context: CompileContext, engine: QueryEngine, fragment: str, number: int, newest_ms: int | None
) -> str:
    directory = context.rundir.fragment(fragment)
    known = [ms for ms in (newest_ms, _newest_taken_ms(context, fragment)) if ms is not None]
    newest_ms = max(known, default=None)
    newest = newest_commit(directory / "checkpoint")
    # One may be planned, but has not begun with the former state: the version with that must not run it.
    BatchVersions(directory).note_free(newest + 1)
    with tempfile.TemporaryDirectory(prefix="drivetrain-state-") as place:
        has_batches = newest >= 0
        empty = engine.empty_state(Path(place), changes=False) if has_batches else None
        DroppedState(directory).drop(number, newest_ms, empty)
    notice = f"fragment {fragment} begins version {number} with an empty state"
    if (
        newest_ms is None
        or window_size_ms(context.plan, next(f for f in context.plan.fragments if f.id == fragment)) is None
    ):
        return notice
    return (
        f"{notice}: windows that start at or before {moment_text(newest_ms)} are not whole, and are left out"
    )


def _newest_taken_ms(context: CompileContext, fragment: str) -> int | None:
    """The largest timestamp that a fragment with state has assigned in its committed batches; None: none.

    Spark's next watermark follows from it; with partitions, which have clocks of their own, the record has
    it.
    """
    directory, graph = context.rundir.fragment(fragment), context.plan.graph
    planned = next(f for f in context.plan.fragments if f.id == fragment)
    times = [graph.nodes[id].operation.assigned_time for id in planned.processors]
    disorder_ms = max((time.max_disorder_ms for time in times if time is not None), default=None)
    if disorder_ms is None:
        return None
    found: list[int] = []
    clock_ms = clock_of(next_watermark_ms(directory / "checkpoint"))
    if clock_ms is not None and clock_ms < FINAL_CLOCK_MS - 1:
        found.append(clock_ms + disorder_ms)
    for newest in NewestRecord(directory).read(newest_commit(directory / "checkpoint")).values():
        found += [ms for ms in (newest.newest_ms, *newest.by_partition.values()) if ms is not None]
    return max(found, default=None)


def newest_known_ms(rundir: RunDirectory, record: GraphVersion, fragment: str) -> int | None:
    """The largest timestamp that messages of a fragment may have had so far, by the files of the fragments
    before it; it may be a minute too late. None: there was none. Raises InputError for a damaged file."""
    found: list[int] = []
    wanted, seen = [fragment], set[str]()
    while wanted:
        id = wanted.pop()
        if id in seen or id not in record.fragments:
            continue
        seen.add(id)
        bound_ms = NewestBound(rundir.fragment(id)).bound_ms
        found += [] if bound_ms is None else [bound_ms]
        wanted += record.producers(id)
    return max(found, default=None)


def _dropping(stored: GraphVersions, number: int, fragment: str) -> int:
    """The version whose change has yet to end, and with which a fragment begins with an empty state; 0: none.

    That is the version itself, or one that it follows, if a run with another file came in between.
    """
    while number:
        try:
            record, ending = stored.version(number), stored.ending(number)
        except InputError:
            return 0
        if fragment not in record.fragments or ending is not None:
            return 0
        if fragment in record.drops:
            return number
        number = record.follows if record.made_how == "run" else 0
    return 0
