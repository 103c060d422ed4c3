"""The rules of a diagnosis: each looks at a situation for one kind of trouble.

Design: a rule is a function from a situation to findings. Thresholds are the constants below. Rules
about fragments that wait for others are in `waits`, about batches in `batches`, about what grows in `trends`,
about masters, memory and disk in `resources`.

Invariants:

1. A rule changes nothing and reads only the situation; the same situation gives the same findings.

Called by `diagnosis`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from drivetrain.core.diagnosis.batches import has_silent_partitions, is_skewed, takes_long
from drivetrain.core.diagnosis.finding import Finding, Severity
from drivetrain.core.diagnosis.resources import disk_runs_out, has_no_quorum, memory_runs_out
from drivetrain.core.diagnosis.situation import Situation
from drivetrain.core.diagnosis.trends import falls_behind, state_grows
from drivetrain.core.diagnosis.waits import clock_stands, is_blocked
from drivetrain.core.figures import show_count, show_counted, show_span

Rule = Callable[[Situation], Iterator[Finding]]

MANY_STARTS: Final = 3
"""A fragment that has started this many times may be in a loop."""
LOOP_MS: Final = 600_000
"""Starts that are further apart than this, on average, are not a loop."""
OLD_CHECKPOINT: Final = 3
"""A checkpoint that has run this many times as long as the last one took is stuck; one that is older than
this many intervals is old."""
SLOW_CHECKPOINT_MS: Final = 30_000
FEW_PER_MILLE: Final = 10
"""This many late or dead-lettered messages in a thousand are too many."""
LEAST_OLD_MS: Final = 15_000
"""A checkpoint that is younger is not old, however short the interval."""


def ended(situation: Situation) -> Iterator[Finding]:
    """The application has failed."""
    if not situation.has_failed:
        return
    error = situation.error
    what = situation.why or "the reason is unknown" if error is None else error.what
    place = f" ({error.where})" if error is not None and error.where else ""
    remedy = (error and error.remedy) or "look at its logs: drivetrain logs " + situation.application
    yield Finding("failed", Severity.CRITICAL, situation.application, f"it has failed: {what}{place}", remedy)


def does_not_answer(situation: Situation) -> Iterator[Finding]:
    """No application master answers."""
    if not situation.is_over and not situation.answers and situation.waits_for is None:
        yield Finding(
            "no-application-master",
            Severity.CRITICAL if situation.epoch > MANY_STARTS else Severity.WARNING,
            situation.application,
            "no application master answers: it is being started, or the machine that it ran on is gone",
            "wait a moment; if this lasts, look at the workers (drivetrain apps) and at its logs",
            evidence=(f"application master number {situation.epoch}",),
        )


def waits_to_start(situation: Situation) -> Iterator[Finding]:
    """It does not process, because it waits for something that the cluster has to provide."""
    waits_for = situation.waits_for
    if situation.is_over or waits_for is None:
        return
    free = sum(machine.free_slots for machine in situation.machines)
    slots = sum(machine.slots for machine in situation.machines)
    if not waits_for.startswith("slots"):
        yield Finding(
            "not-processing",
            Severity.NOTE,
            situation.application,
            f"it does not process yet: it waits for {waits_for}",
            "nothing to do, unless this lasts",
        )
        return
    remedy = "start another worker (drivetrain worker), or end an application that is not needed"
    if not situation.machines:
        remedy = "start a worker: drivetrain worker --masters …"
    elif free:
        remedy = "use fewer slots for each executor, or start a worker with more slots"
    yield Finding(
        "no-slots",
        Severity.CRITICAL,
        situation.application,
        f"it waits for {waits_for}: {free} of {show_counted(slots, 'slot')} are free "
        f"on {show_counted(len(situation.machines), 'worker')}",
        remedy,
    )


def starts_again_and_again(situation: Situation) -> Iterator[Finding]:
    """Fragments that fail and are started again, in a loop."""
    for fragment in situation.fragments:
        each_ms = (situation.runs_for_ms or 0) / fragment.attempt
        if situation.is_over or fragment.attempt < MANY_STARTS or each_ms > LOOP_MS:
            continue
        error = fragment.error or (situation.recovered[-1] if situation.recovered else None)
        because = "" if error is None else f"; the last error: {error.what}"
        yield Finding(
            "restart-loop",
            Severity.CRITICAL if fragment.error is not None else Severity.WARNING,
            fragment.id,
            f"it has started {show_counted(fragment.attempt, 'time')}{because}",
            (error and error.remedy) or f"look at its logs: drivetrain logs {situation.application}",
        )


def checkpoints_fail(situation: Situation) -> Iterator[Finding]:
    """Checkpoints fail, or the current one does not end."""
    checkpoints = situation.checkpoints
    if checkpoints is None or situation.is_over:
        return
    since_ms = checkpoints.last_ago_ms
    last = "none has succeeded" if since_ms is None else f"the last one is {show_span(since_ms)} old"
    if checkpoints.failures:
        failure = checkpoints.failures[-1]
        because = f" because of {', '.join(failure.fragments)}" if failure.fragments else ""
        yield Finding(
            "checkpoints-fail",
            Severity.CRITICAL if len(checkpoints.failures) >= MANY_STARTS else Severity.WARNING,
            situation.application,
            f"{show_counted(len(checkpoints.failures), 'checkpoint')} failed{because}: "
            f"{failure.reason}; {last}",
            "fix what the reason names: results that are not in a checkpoint are not published",
            since_ms=since_ms,
        )
    running_ms, usual_ms = checkpoints.running_ms, max(checkpoints.last_took_ms or 0, SLOW_CHECKPOINT_MS)
    if running_ms is not None and running_ms > OLD_CHECKPOINT * usual_ms:
        yield Finding(
            "checkpoint-stuck",
            Severity.WARNING,
            situation.application,
            f"a checkpoint has been running for {show_span(running_ms)}; {last}",
            "look for a fragment that is blocked or whose batches take long: barriers wait with the messages",
            since_ms=running_ms,
        )
        return
    interval_ms, old_ms = checkpoints.interval_ms, situation.runs_for_ms if since_ms is None else since_ms
    if interval_ms is None or old_ms is None or checkpoints.failures or not _has_work(situation):
        return
    if old_ms > max(OLD_CHECKPOINT * interval_ms, LEAST_OLD_MS):
        newest = "no checkpoint has succeeded"
        newest = newest if since_ms is None else f"the last checkpoint is {show_span(since_ms)} old"
        yield Finding(
            "checkpoint-old",
            Severity.WARNING,
            situation.application,
            f"{newest}, though there is to be one every {show_span(interval_ms)}",
            "look for a fragment that is blocked or whose batches take long: barriers wait with the messages",
            since_ms=old_ms,
        )


def _has_work(situation: Situation) -> bool:
    """Whether messages come or wait: an idle application needs no new checkpoint."""
    return any(f.rows_per_s or f.lag_rows or f.blocked_by is not None for f in situation.running())


def loses_messages(situation: Situation) -> Iterator[Finding]:
    """Messages that were lost, repaired, left out, late or put into the dead letters."""
    if situation.lost:
        yield Finding(
            "lost-at-source",
            Severity.CRITICAL,
            situation.application,
            f"{show_counted(situation.lost, 'message')} were gone before the sources read them",
            "let the source keep messages for longer than the application may be down",
        )
    for fragment in situation.fragments:
        if fragment.left_out:
            yield Finding(
                "left-out",
                Severity.NOTE,
                fragment.id,
                f"{show_counted(fragment.left_out, 'message')} left out after crashes: "
                "delivery is at most once",
                'set run.delivery="exactly once" if every message counts',
            )
    for channel in situation.channels():
        if channel.losses > channel.replays:
            yield Finding(
                "repair",
                Severity.WARNING,
                f"{channel.producer} → {channel.subscriber}",
                f"{show_counted(channel.losses, 'loss', 'losses')} found in the channel, "
                f"{show_count(channel.replays)} repaired so far: {channel.subscriber} waits for the rest",
                "check the disk or file system that holds the state: files were damaged or removed",
            )
    for processor in situation.processors:
        if processor.late * 1000 >= max(1, processor.taken) * FEW_PER_MILLE and processor.late:
            yield Finding(
                "late",
                Severity.WARNING,
                processor.id,
                f"{show_count(processor.late)} of {show_counted(processor.taken, 'message')} came too late",
                "raise max_disorder or allowed_lateness, or read the late messages: stream.late",
            )
        if processor.dead_lettered:
            is_much = processor.dead_lettered * 1000 >= max(1, processor.taken) * FEW_PER_MILLE
            yield Finding(
                "dead-letters",
                Severity.WARNING if is_much else Severity.NOTE,
                processor.id,
                f"{show_counted(processor.dead_lettered, 'message')} could not be processed",
                "look at them: drivetrain dead-letters",
            )


ALL: Final[tuple[Rule, ...]] = (
    ended,
    does_not_answer,
    waits_to_start,
    starts_again_and_again,
    is_blocked,
    clock_stands,
    takes_long,
    falls_behind,
    state_grows,
    is_skewed,
    has_silent_partitions,
    checkpoints_fail,
    loses_messages,
    has_no_quorum,
    disk_runs_out,
    memory_runs_out,
)
