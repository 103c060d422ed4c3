"""The time at which a change can take effect in a running application.

Problem: a change at a time T is exact only if the previous version has processed no message of T or later in
any affected fragment. Fragments differ in how far they have come.

Design: places and windows follow from both plans (`core.change.handover_places`); the
progress of a fragment comes from its query:

| fragment | its progress |
|---|---|
| without state | the newest message of its sources, and how far those of its channels have come |
| after windows | the clock: windows that end later have emitted nothing |

While batches run, the answer is preliminary: `handovers` repeats the question when none runs.

Called by `change_proposal`, `handovers`, and attempts of executors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from drivetrain.core.change.handover_places import (
    HandoverError,
    chosen_time,
    require_same_places,
    window_sizes,
)
from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.spark.batch.newest_bound import NewestBound

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory
    from drivetrain.spark.run.application_versions import ApplicationVersions, LoadedVersion
    from drivetrain.spark.run.fragment_driver import FragmentDriver


def checked(
    versions: ApplicationVersions,
    drivers: Mapping[str, FragmentDriver],
    loaded: LoadedVersion,
    of: frozenset[str],
    code: bytes | None,
    at: int | Literal["next-window"],
) -> int:
    """The time at which a change currently takes effect in the fragments `of`.

    Raises HandoverError when it cannot, also because the code of one of the versions is not kept: after a
    crash both are needed.
    """
    before = versions.in_force
    number = before.record.number
    codes = {f"version {number}": versions.rundir.versions.code(number), "the new version": code}
    for named, kept in codes.items():
        if kept is None:
            raise HandoverError(
                "a change at an event time needs the code of both versions, also after a crash",
                got=f"the code of {named} cannot be kept: something in the graph cannot be pickled",
                remedy="use --at now",
            )
    for id in sorted(of):
        require_same_places(before.plan, loaded.plan, (before.record, loaded.record), id)
    if at == "next-window" and not of <= drivers.keys():
        return chosen_time(at, NO_CLOCK_MS, sizes_of(loaded, of))  # other processes know their progress
    return time_of(versions.rundir, drivers, loaded, of, at)


def time_of(
    rundir: RunDirectory,
    drivers: Mapping[str, FragmentDriver],
    loaded: LoadedVersion,
    of: frozenset[str],
    at: int | Literal["next-window"],
) -> int:
    """The time at which a change takes effect in those of the fragments `of` that `drivers` drive.

    Raises HandoverError if it cannot.
    """
    sizes = sizes_of(loaded, of)
    newest = [newest_ms(rundir, drivers, loaded, id) for id in sorted(of & drivers.keys())]
    return chosen_time(at, max((ms for ms in newest if ms is not None), default=None), sizes)


def sizes_of(loaded: LoadedVersion, of: frozenset[str]) -> frozenset[int]:
    """The sizes in ms of the windows before what changes in the fragments `of`; raises HandoverError if other
    states come before it."""
    plan = loaded.plan
    return frozenset().union(*(window_sizes(plan, f) for f in plan.fragments if f.id in of))


def newest_ms(
    rundir: RunDirectory, drivers: Mapping[str, FragmentDriver], loaded: LoadedVersion, id: str
) -> int | None:
    """The latest time that a message of a fragment's branches may have had so far; None: there was none.

    For producers in other processes, their files are read, which may be a minute ahead.
    """
    plan, query = loaded.plan, drivers[id].query if id in drivers else None
    fragment = next(f for f in plan.fragments if f.id == id)
    operation = plan.stateful_operation(fragment)
    if operation is not None and query is not None:
        window_sizes(plan, fragment)  # raises for other state, whose results may be later than the clock
        return None if query.clock_ms is None else query.clock_ms + operation.result_lag_ms - 1
    above = {c.producer_fragment for c in plan.channels if c.consumer_fragment == id}
    bound_ms = NewestBound(rundir.fragment(id)).bound_ms if query is None else query.clock.bound_ms
    known = [bound_ms, *(newest_ms(rundir, drivers, loaded, producer) for producer in sorted(above))]
    newest = max((ms for ms in known if ms is not None), default=None)
    if operation is None or newest is None:
        return newest
    window = operation.grouping_window  # at the end of its input, it emits those that have not ended
    return newest + operation.result_lag_ms + (0 if window is None else window.size_ms)
