"""The rules about the resources of an application: masters, memory, disk.

Called by `rules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drivetrain.core.diagnosis.finding import Finding, Severity
from drivetrain.core.diagnosis.situation import Situation
from drivetrain.core.diagnosis.trends import trend_of
from drivetrain.core.figures import show_counted, show_share, show_size, show_span

LITTLE_MEMORY: Final = 512 * 2**20
LITTLE_DISK: Final = 2**30
SMALL_SHARE: Final = 0.05
"""Free disk below this share of the whole is a warning."""
NO_DISK: Final = 128 * 2**20
SOON_MS: Final = 24 * 3_600_000
SILENT_MS: Final = 10_000
"""A master whose last message is this old counts as not answering."""


def has_no_quorum(situation: Situation) -> Iterator[Finding]:
    """No majority of masters answers, or the next failure of a master would end it."""
    masters = situation.masters
    if not masters or situation.is_over:
        return
    answering = [
        master for master in masters if master.silent_ms is not None and master.silent_ms < SILENT_MS
    ]
    missing = [master.name for master in masters if master not in answering]
    majority = len(masters) // 2 + 1
    counted = f"{len(answering)} of {show_counted(len(masters), 'master')}"
    if not any(master.leads for master in answering):
        yield Finding(
            "no-quorum",
            Severity.CRITICAL,
            "masters",
            f"no master leads: {counted} {'answers' if len(answering) == 1 else 'answer'}, {majority} are "
            "needed; applications keep running, but nothing can be submitted, changed or restarted",
            f"start the masters that do not answer: {', '.join(missing)}"
            if missing
            else "wait a moment: an election is under way; if it lasts, look at the logs of the masters",
        )
    elif missing and len(answering) == majority:
        yield Finding(
            "no-spare-master",
            Severity.WARNING,
            "masters",
            f"{counted} answer: without one more of them nothing can be submitted, changed or restarted",
            f"start the masters that do not answer: {', '.join(missing)}",
        )


def memory_runs_out(situation: Situation) -> Iterator[Finding]:
    """Workers with hardly any memory left."""
    for machine in situation.machines:
        if machine.memory_free is not None and machine.memory_free < LITTLE_MEMORY:
            yield Finding(
                "little-memory",
                Severity.WARNING,
                machine.name,
                f"only {machine.memory_free // 2**20} MiB of memory is free on this worker",
                "lower spark.driver-memory, offer fewer slots there, or use a larger machine",
            )


def disk_runs_out(situation: Situation) -> Iterator[Finding]:
    """The file system with the state directory is nearly full, or will be soon."""
    free, total = situation.disk_free, situation.disk_total
    if free is None or situation.is_over:
        return
    series = [(m.at_ms, -float(m.disk_free)) for m in situation.history.moments if m.disk_free is not None]
    trend = trend_of(series)
    full_in_ms = None if trend is None else int(free / trend.per_s * 1000)
    is_little = free < LITTLE_DISK or (total is not None and free < SMALL_SHARE * total)
    is_soon = full_in_ms is not None and full_in_ms <= SOON_MS
    if not is_little and not is_soon:
        return
    of = "" if not total else f" ({show_share(free / total)})"
    when = f"; at this rate it is full in {show_span(full_in_ms or 0)}" if is_soon else ""
    yield Finding(
        "little-disk",
        Severity.CRITICAL if free < NO_DISK else Severity.WARNING,
        situation.application,
        f"only {show_size(free)}{of} are free where its state directory is{when}",
        "make room there, or move the state directory (state.dir) to a larger disk: when it is full, "
        "batches fail",
    )
