"""The rules about waiting: which fragment holds up which, followed to the root.

Problem: figures show that a fragment waits. It is rarely the cause: it waits for another one, which waits for
a third.

Design: the wait is followed from fragment to fragment. A finding is about the root: it
names every step, and what is wrong there (it is being started again, its batches take long, or its
source gives nothing). All fragments that wait for one root share one finding.

Invariants:

1. Following a wait ends, also where fragments wait for each other.

Called by `rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from drivetrain.core.diagnosis.causes import cause_of
from drivetrain.core.diagnosis.finding import Finding, Severity
from drivetrain.core.diagnosis.situation import FragmentSituation, Situation
from drivetrain.core.figures import show_counted, show_rate, show_size, show_span

LONG_BATCH_MS: Final = 30_000
LONG_STALL_MS: Final = 60_000
"""A clock that has stood still for this long is a warning; for less, a note."""
MUCH_BLOCKED_MS: Final = 5_000


def is_blocked(situation: Situation) -> Iterator[Finding]:
    """A fragment waits because a channel is full: the root is the fragment that does not read from it."""
    roots: dict[str, list[FragmentSituation]] = {}
    for fragment in situation.fragments:
        if fragment.blocked_by is not None and not situation.is_over:
            roots.setdefault(_chain(situation, fragment, _blocker)[-1].id, []).append(fragment)
    for root, blocked in roots.items():
        chain = max((_chain(situation, fragment, _blocker) for fragment in blocked), key=len)
        since_ms = max(
            *(fragment.figures.blocked_now_ms for fragment in blocked),
            *(c.blocked_ms for c in situation.channels() if c.producer in _ids(blocked)),
            0,
        )
        why, remedy = _why_slow(chain[-1])
        yield Finding(
            "blocked",
            Severity.WARNING if since_ms >= MUCH_BLOCKED_MS else Severity.NOTE,
            root,
            f"{', '.join(_ids(blocked))} must wait, because {root} does not keep up: {why}",
            remedy,
            (
                *(f"{a.id} waits for {b.id} to catch up" for a, b in pairwise(chain)),
                why,
            ),
            figures_of(chain[-1]),
            since_ms or None,
        )


def clock_stands(situation: Situation) -> Iterator[Finding]:
    """The clock of a fragment stands still; those after it wait for it, and get no finding of their own."""
    if situation.is_over:
        return
    roots: dict[str, list[FragmentSituation]] = {}
    for fragment in situation.fragments:
        if fragment.stalled_ms:
            roots.setdefault(_chain(situation, fragment, _held_by)[-1].id, []).append(fragment)
    for root, standing in roots.items():
        chain = max((_chain(situation, fragment, _held_by) for fragment in standing), key=len)
        held = chain[-1]
        if held.blocked_by is not None:
            continue  # a blocked fragment stops its clock, and `is_blocked` reports that
        since_ms = max(fragment.stalled_ms for fragment in standing)
        why, remedy = _why_held(held)
        yield Finding(
            "clock-stands",
            Severity.WARNING if since_ms >= LONG_STALL_MS else Severity.NOTE,
            root,
            f"the clock stands still, so no window ends: {root} waits for {why}",
            remedy,
            (
                *(f"{a.id} waits for {b.id}" for a, b in pairwise(chain)),
                f"{root} waits for {why}",
            ),
            figures_of(held),
            since_ms,
        )


def figures_of(fragment: FragmentSituation) -> tuple[str, ...]:
    """How fast a fragment is, and how much input waits for it."""
    found = [] if not fragment.batch_ms else [f"last batch {show_span(fragment.batch_ms)}"]
    found += [] if not fragment.rows_per_s else [f"processes {show_rate(fragment.rows_per_s)}"]
    figures = fragment.figures
    if figures.state_bytes:
        found.append(f"state {show_size(figures.state_bytes)}")
    if figures.latency_p99_ms is not None:
        found.append(f"99 % of results within {show_span(max(0, figures.latency_p99_ms))} of their messages")
    for channel in fragment.channels:
        if channel.lag_rows:
            behind = "" if channel.lag_ms is None else f", {show_span(channel.lag_ms)} behind"
            found.append(f"{show_counted(channel.lag_rows, 'message')} from {channel.producer} wait{behind}")
    return tuple(found)


# -- following a wait --------------------------------------------------------------------------------


def _chain(
    situation: Situation,
    fragment: FragmentSituation,
    next_of: Callable[[Situation, FragmentSituation], FragmentSituation | None],
) -> list[FragmentSituation]:
    """From a fragment to the one that it ultimately waits for, both included."""
    chain = [fragment]
    while (following := next_of(situation, chain[-1])) is not None and following not in chain:
        chain.append(following)
    return chain


def _blocker(situation: Situation, fragment: FragmentSituation) -> FragmentSituation | None:
    return None if fragment.blocked_by is None else situation.fragment(fragment.blocked_by)


def _held_by(situation: Situation, fragment: FragmentSituation) -> FragmentSituation | None:
    waits_for = fragment.waiting_for or ""
    return (
        situation.fragment(waits_for.removeprefix("fragment ")) if waits_for.startswith("fragment ") else None
    )


def _why_slow(root: FragmentSituation) -> tuple[str, str]:
    """Why the fragment at the root of a block does not keep up, and what to do."""
    if not root.is_running:
        return f"it is {root.state}", "wait until it runs again; if it does not, its error shows why"
    cause = cause_of(root.figures)
    if cause is not None:
        return f"it processes {show_rate(root.rows_per_s)}; {cause.sentence}", cause.remedy
    if root.batch_ms >= LONG_BATCH_MS:
        return (
            f"its batches take {show_span(root.batch_ms)}",
            "make its work for each message cheaper, give Spark more cores, or look at what it writes to",
        )
    return (
        f"it processes {show_rate(root.rows_per_s)}",
        "give Spark more cores, make its work for each message cheaper, or look at what it writes to",
    )


def _why_held(root: FragmentSituation) -> tuple[str, str]:
    """What the fragment at the root of a standing clock waits for, and what to do."""
    waits_for = root.waiting_for or "data of its source"
    if waits_for.startswith("partition"):
        return waits_for, "if that partition may be silent, set idle_timeout in event_time()"
    if waits_for.startswith("data"):
        remedy = "nothing to do if the source has no new messages; otherwise check that it is reachable"
        return waits_for, remedy
    if waits_for.startswith("its own work"):
        return waits_for, "wait for the batch to end, or make batches smaller (run.max-batch-bytes)"
    if not root.is_running or waits_for.startswith("its"):
        return waits_for, "wait until it runs; if it does not, its error shows why"
    return waits_for, "see what it waits for"


def _ids(fragments: list[FragmentSituation]) -> list[str]:
    return [fragment.id for fragment in fragments]
