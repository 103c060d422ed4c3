"""The progress of a streaming application's fragments, as reported by executors.

Problem: reports arrive late, from attempts that were abandoned, and twice; those must not count, and no final
count may be lost or counted again.

Design: a report counts only for the current attempt of a fragment, on the executor that runs it, until that
attempt has ended (`close`). Counters of attempts add up in `core.job.accumulators`: the user's, and those of
processors.

Invariant: the counts of a closed attempt do not change any more.

Called by `running_job`, and by `stream_status` for followers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from drivetrain.cluster.app_master.executors.executor_pool import Member
from drivetrain.cluster.app_master.stream.planned_application import counts_of
from drivetrain.cluster.messages.executing import ExecutorReport, FragmentProgress
from drivetrain.cluster.messages.following import ErrorView, FragmentView, OutputView
from drivetrain.core.job.accumulators import Accumulators, Number
from drivetrain.core.job.fragment_execution import Execution, ExecutionState
from drivetrain.core.job.fragment_figures import counters_of
from drivetrain.core.job.fragment_figures import flat as flat_counters
from drivetrain.core.job.job import Job
from drivetrain.core.plan.counts import CountRule

_TOO_LARGE: Final = 2**63
_COUNTS: Final = ("out", "into", "late", "dead")


@dataclass(frozen=True)
class VersionStatus:
    """The part of the status that depends on the version: its sinks, and the rules for processors' counts."""

    outputs: tuple[OutputView, ...] = ()
    rules: Mapping[str, CountRule] = field(default_factory=dict)


class StreamProgress:
    """The progress of `job`."""

    def __init__(self, job: Job) -> None:
        self._job: Final = job
        self.shown = VersionStatus()
        """Of the version of the graph that runs."""
        self.shown_before: VersionStatus | None = None
        """Of the version to which it goes back from that one, if its trial fails."""
        self._reports_taken = 0
        self._progress: dict[str, FragmentProgress] = {}
        self._failures: dict[str, ErrorView] = {}
        self._disk: tuple[int | None, int | None] = (None, None)
        self._counters: Final = Accumulators()  # the user's
        self._messages: Final = Accumulators()  # of processors and fragments
        self._sums: Final[dict[str, dict[str, Number]]] = {}  # by fragment, until its next report

    # ---- events

    def take(self, report: ExecutorReport) -> list[str]:
        """Add a report; returns the fragments that have processed data."""
        self._reports_taken += 1
        if report.disk_free is not None and report.disk_total is not None:
            self._disk = (report.disk_free, report.disk_total)
        order, gave = self._reports_taken, []
        for progress in report.fragments:
            execution = self._job.execution(progress.fragment)
            if (
                execution is None
                or execution.attempt != progress.attempt
                or execution.executor != report.executor_id
                or execution.is_terminal
            ):
                continue
            fragment, attempt = progress.fragment, progress.attempt
            self._progress[fragment] = progress
            self._messages.report(fragment, attempt, order, _flattened(progress))
            self._sums.pop(fragment, None)
            self._counters.report(fragment, attempt, order, report.accumulators.get(fragment, {}))
            if progress.batch_id >= 0 or any(progress.out.values()):
                gave.append(fragment)
        return gave

    def close(self, fragment: str, attempt: int) -> None:
        """The attempt has ended: its counts are final."""
        self._messages.close(fragment, attempt)
        self._counters.close(fragment, attempt)

    def failed(self, fragment: str, error: ErrorView) -> None:
        """An attempt has failed; keep the error until the next failure."""
        self._failures[fragment] = error

    # ---- queries

    def accumulators(self) -> dict[str, Number]:
        """The user's counters; an integer too large for a message becomes a float."""
        return {name: n if abs(n) < _TOO_LARGE else float(n) for name, n in self._counters.totals().items()}

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        """Messages in, out, late, dead-lettered by processor."""
        totals = self._messages.totals()
        of = {kind: _named(totals, kind) for kind in _COUNTS}
        return counts_of(self.shown.rules, of["out"], of["into"], of["late"], of["dead"])

    def skipped(self) -> int:
        """The number of messages older than the replay."""
        return self._sum("skipped")

    def lost(self) -> int:
        """The number of messages deleted before the sources read them."""
        return self._sum("lost")

    @property
    def disk_free(self) -> int | None:
        """Free bytes where the state directory is; all executors share it, so the last report counts."""
        return self._disk[0]

    @property
    def disk_total(self) -> int | None:
        """How large that file system is."""
        return self._disk[1]

    def _sum(self, kind: str) -> int:
        return sum(int(self._sums_of(e.fragment).get(kind, 0)) for e in self._job.executions)

    def _sums_of(self, fragment: str) -> dict[str, Number]:
        """The sum of the counts of all attempts of a fragment; a status asks for it several times."""
        if fragment not in self._sums:
            self._sums[fragment] = self._messages.of(fragment)
        return self._sums[fragment]

    def outputs(self) -> tuple[OutputView, ...]:
        """The sinks, with the messages that have reached them; none before the application is prepared."""
        into = _named(self._messages.totals(), "into")
        return tuple(
            msgspec.structs.replace(output, messages=into.get(output.processor, output.messages))
            for output in self.shown.outputs
        )

    def fraction(self) -> float | None:
        """The share of bounded input that was read, None when no input is bounded."""
        taken = total = 0
        for execution in self._job.executions:
            progress = self._progress.get(execution.fragment)
            if progress is not None and progress.total is not None:
                taken, total = taken + progress.taken, total + progress.total
        return min(1.0, taken / total) if total else None

    def views(
        self,
        find: Callable[[str], Member | None],
        stall: Callable[[str], tuple[int, str | None]],
    ) -> tuple[FragmentView, ...]:
        """The fragments for the status; `find` returns an executor by its id, `stall` how long a clock has
        not moved (ms), and what it waits for."""
        return tuple(self._view(execution, find, stall) for execution in self._job.executions)

    def _view(
        self,
        execution: Execution,
        find: Callable[[str], Member | None],
        stall: Callable[[str], tuple[int, str | None]],
    ) -> FragmentView:
        fragment = execution.fragment
        progress = self._progress.get(fragment) or FragmentProgress(fragment, 0, -1, 0, 0.0, 0, None, None)
        member = None if execution.executor is None else find(execution.executor)
        given = None if member is None else member.allocation
        return FragmentView(
            fragment,
            execution.state.value,
            execution.attempt,
            execution.executor,
            None if given is None else given.worker_name,
            progress.batch_id,
            int(self._sums_of(fragment).get("rows", 0)),
            progress.rows_per_s if execution.state is ExecutionState.RUNNING else 0.0,
            progress.batch_ms,
            progress.lag_rows,
            progress.clock_ms,
            self._failures.get(fragment),
            progress.channels,
            progress.watermark_delay_ms,
            *stall(fragment),
            progress.blocked_by,
            progress.left_out,
            msgspec.structs.replace(progress.figures, counters=counters_of(self._sums_of(fragment))),
        )


def _flattened(progress: FragmentProgress) -> dict[str, Number]:
    flat: dict[str, Number] = {
        "rows": progress.rows_total,
        "skipped": progress.skipped,
        "lost": progress.lost,
    }
    flat |= flat_counters(progress.figures.counters)
    for kind in _COUNTS:
        counts: dict[str, int] = getattr(progress, kind)
        flat |= {f"{kind}:{processor}": count for processor, count in counts.items()}
    return flat


def _named(totals: Mapping[str, Number], kind: str) -> dict[str, int]:
    prefix = f"{kind}:"
    return {name.removeprefix(prefix): int(n) for name, n in totals.items() if name.startswith(prefix)}
