"""The rules about batches: those that take long, input that waits, work that is unevenly shared.

Design: a batch that takes long is compared with how long it is meant to take, if the fragment has a trigger,
and with `LONG_BATCH_MS`. Its longest part is named (`causes`).

Called by `rules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drivetrain.core.diagnosis.causes import cause_of
from drivetrain.core.diagnosis.finding import Finding, Severity
from drivetrain.core.diagnosis.situation import FragmentSituation, Situation
from drivetrain.core.diagnosis.waits import LONG_BATCH_MS, figures_of
from drivetrain.core.figures import show_count, show_counted, show_rate, show_span

LONG_CATCH_UP_S: Final = 600
OVER_TRIGGER: Final = 1.5
"""A batch that takes this many times as long as its trigger is late."""
SKEW: Final = 3.0
"""A partition or task with this many times the mean is out of proportion."""
_SLOWEST: Final = 0.001
"""A lower rate says nothing yet: the fragment has only just begun."""
_MUCH_SKEWED_ROWS: Final = 10_000
_LONG_TASK_MS: Final = 2_000


def takes_long(situation: Situation) -> Iterator[Finding]:
    """Batches that take long, and input that takes long to catch up with."""
    for fragment in situation.running():
        yield from _long_batches(fragment)
        waiting_s = (fragment.lag_rows or 0) / fragment.rows_per_s if fragment.rows_per_s >= _SLOWEST else 0
        if waiting_s >= LONG_CATCH_UP_S:
            yield Finding(
                "far-behind",
                Severity.WARNING,
                fragment.id,
                f"{show_count(fragment.lag_rows)} messages wait: at {show_rate(fragment.rows_per_s)} they "
                f"take {show_span(int(waiting_s * 1000))}, even if no more arrive",
                "give Spark more cores, or make what it does with each message cheaper",
            )


def _long_batches(fragment: FragmentSituation) -> Iterator[Finding]:
    trigger_ms = fragment.figures.trigger_ms
    if fragment.batch_ms < max(LONG_BATCH_MS, OVER_TRIGGER * (trigger_ms or 0)):
        return
    cause = cause_of(fragment.figures)
    meant = "" if trigger_ms is None else f", though a batch is meant to take {show_span(trigger_ms)}"
    yield Finding(
        "long-batches",
        Severity.WARNING,
        fragment.id,
        f"its last batch took {show_span(fragment.batch_ms)}{meant}: results are late by that much",
        "make batches smaller (run.max-batch-bytes, run.max-batch-rows), or give Spark more cores"
        if cause is None
        else cause.remedy,
        () if cause is None else (f"its batches take {show_span(fragment.batch_ms)}", cause.sentence),
        figures_of(fragment),
    )


def is_skewed(situation: Situation) -> Iterator[Finding]:
    """A partition that gives most of the messages, or a task that does most of the work."""
    for fragment in situation.running():
        rows = fragment.figures.partition_rows
        total, severity = sum(rows.values()), _skew_severity(fragment)
        largest = max(rows, key=lambda name: rows[name], default=None)
        if largest is not None and _is_out_of_proportion(rows[largest], total, len(rows)):
            if total >= _MUCH_SKEWED_ROWS:
                yield Finding(
                    "skew",
                    severity,
                    fragment.id,
                    f"partition {largest} gives {show_count(rows[largest])} of the last "
                    f"{show_counted(total, 'message')} of {len(rows)} partitions: one task has most of "
                    "the work",
                    "let producers choose keys that spread over the partitions",
                )
            continue
        last = fragment.figures.last
        if last.python_longest_ms >= _LONG_TASK_MS and _is_out_of_proportion(
            last.python_longest_ms, last.python_ms, last.python_tasks
        ):
            yield Finding(
                "skew",
                severity,
                fragment.id,
                f"the longest of {show_counted(last.python_tasks, 'task')} with Python code took "
                f"{show_span(last.python_longest_ms)} of {show_span(last.python_ms)} together: "
                "the others wait for it",
                "spread the work: a key with fewer messages each, or shuffle() before the function",
            )


def has_silent_partitions(situation: Situation) -> Iterator[Finding]:
    """Partitions of a source that the clock ignores, because they have given nothing for long."""
    for fragment in situation.running():
        silent = fragment.figures.silent_partitions
        if silent:
            several = len(silent) > 1
            yield Finding(
                "silent-partition",
                Severity.NOTE,
                fragment.id,
                f"{'partitions' if several else 'partition'} {', '.join(silent[:5])}"
                f"{' …' if len(silent) > 5 else ''} {'have' if several else 'has'} given nothing for longer "
                "than idle_timeout: the clock ignores them",
                "nothing to do if producers are silent; messages that they send later may be late",
            )


def _is_out_of_proportion(largest: int, total: int, parts: int) -> bool:
    """Whether one part has `SKEW` times the mean; with few parts, where none can, whether it has most of the
    whole."""
    return parts > 1 and largest >= min(SKEW * total / parts, 0.9 * total)


def _skew_severity(fragment: FragmentSituation) -> Severity:
    return Severity.WARNING if fragment.batch_ms >= LONG_BATCH_MS / 3 else Severity.NOTE
