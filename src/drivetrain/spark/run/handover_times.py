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

Called by `change_proposal` and `handovers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from drivetrain.core.change.handover_places import (
    HandoverError,
    earliest_ms,
    require_same_places,
    require_time,
    window_sizes,
)

if TYPE_CHECKING:
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
    return time_of(drivers, loaded, of, at)


def time_of(
    drivers: Mapping[str, FragmentDriver],
    loaded: LoadedVersion,
    of: frozenset[str],
    at: int | Literal["next-window"],
) -> int:
    """The time at which a change takes effect in the fragments `of`; raises HandoverError if it cannot."""
    sizes: set[int] = set()
    newest: list[int] = []
    for id in sorted(of):
        sizes |= window_sizes(loaded.plan, next(f for f in loaded.plan.fragments if f.id == id))
        of_fragment = _newest_ms(drivers, loaded, id)
        newest += [] if of_fragment is None else [of_fragment]
    newest_ms = max(newest, default=None)
    if at != "next-window":
        require_time(at, newest_ms, sizes)
        return at
    if not sizes:
        raise HandoverError(
            "no changed processor follows a window, so there is no next one",
            remedy="give a time, or use --at now",
        )
    return earliest_ms(newest_ms, sizes)


def _newest_ms(drivers: Mapping[str, FragmentDriver], loaded: LoadedVersion, id: str) -> int | None:
    """The latest time that a message of a fragment's branches may have had so far; None: there was none."""
    plan, query = loaded.plan, drivers[id].query
    fragment = next(f for f in plan.fragments if f.id == id)
    if fragment.stateful is not None:
        window_sizes(plan, fragment)  # raises for other state, whose results may be later than the clock
        lag_ms = plan.graph.nodes[fragment.stateful].operation.result_lag_ms
        return None if query.clock_ms is None else query.clock_ms + lag_ms - 1
    above = {c.producer_fragment for c in plan.channels if c.consumer_fragment == id}
    known = [query.clock.bound_ms, *(_newest_ms(drivers, loaded, producer) for producer in sorted(above))]
    return max((ms for ms in known if ms is not None), default=None)
