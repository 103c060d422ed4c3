"""Makes the console's answers from the reports of the masters and of an application master.

Called by `console.watching.cluster_watch`, `console.handlers.cluster` and `console.handlers.applications`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from drivetrain.cluster.messages import applications as messages
from drivetrain.cluster.messages.following import ErrorView, FragmentView, JobStatus
from drivetrain.console.answers.applications import ApplicationSnapshot, ApplicationSummary
from drivetrain.console.answers.cluster import Cluster, Master, Shows, Worker
from drivetrain.console.answers.diagnosis import diagnosis_of
from drivetrain.console.answers.progress import (
    Channel,
    Checkpoints,
    CompletedCheckpoint,
    ErrorReport,
    Executor,
    FailedCheckpoint,
    Fragment,
    Job,
    Output,
    Processor,
)
from drivetrain.console.watching.figure_answers import figures_of
from drivetrain.console.watching.rates import Rates
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.diagnosis.situation import Situation
from drivetrain.version import VERSION


def cluster_of(
    masters: Sequence[messages.MasterView],
    workers: Sequence[messages.WorkerView],
    lines: Iterable[messages.ApplicationSummary],
    now_ms: int,
    shows: Shows = "cluster",
) -> Cluster:
    """The cluster in short, or that the console shows the runs of one machine."""
    leader = next((master for master in masters if master.leads), None)
    return Cluster(
        version=VERSION,
        shows=shows,
        now_ms=now_ms,
        leader=None if leader is None else leader.address,
        term=max((master.term for master in masters), default=0),
        masters=tuple(map(master_of, masters)),
        workers=len(workers),
        slots=sum(worker.slots for worker in workers),
        free_slots=sum(worker.free for worker in workers),
        applications=dict(sorted(Counter(line.state.value for line in lines).items())),
    )


def master_of(view: messages.MasterView) -> Master:
    """A master."""
    return Master(address=view.address, leads=view.leads, term=view.term, silent_ms=view.silent_ms)


def worker_of(view: messages.WorkerView) -> Worker:
    """A worker."""
    return Worker(
        worker_id=view.worker_id,
        name=view.name,
        host=view.host,
        slots=view.slots,
        free_slots=view.free,
        registered_ms=view.registered_ms,
        cpu=view.cpu,
        memory_free_bytes=view.memory_free,
        launched=view.launched,
    )


def line_of(line: messages.ApplicationSummary) -> ApplicationSummary:
    """An application of a list."""
    return ApplicationSummary(
        app_id=line.app_id,
        name=line.name,
        state=line.state.value,
        epoch=line.epoch,
        submitted_ms=line.submitted_ms,
        ended_ms=line.ended_ms,
        worker=line.worker,
        why=line.why,
        clock_ms=line.clock_ms,
        graph_version=line.graph_version,
        priority=line.priority.value,
        file=line.file,
    )


def snapshot_of(
    view: messages.ApplicationView,
    status: JobStatus | None,
    situation: Situation,
    rates: Rates,
    now_ms: int,
) -> ApplicationSnapshot:
    """All of an application; `situation` is what is diagnosed, `rates` are those of its processors."""
    return ApplicationSnapshot(
        now_ms=now_ms,
        application=line_of(view.line),
        app_master=view.spec.app_master,
        diagnosis=diagnosis_of(situation),
        job=None if status is None else job_of(status, rates),
    )


def job_of(status: JobStatus, rates: Rates) -> Job:
    """A job as its application master reported it."""
    return Job(
        state=status.state.value,
        epoch=status.epoch,
        started_ms=status.started_ms,
        now_ms=status.now_ms,
        clock_ms=status.clock_ms,
        fraction=status.fraction,
        waiting_for=status.waiting_for,
        change=status.change,
        life=status.life,
        replay_from_ms=status.replay_from_ms,
        skipped=status.skipped,
        lost=status.lost,
        fragments=tuple(map(_fragment, status.fragments)),
        channels=tuple(_channel(each) for view in status.fragments for each in view.channels),
        processors=tuple(_processor(id, counts, rates) for id, counts in status.counts.items()),
        executors=tuple(
            Executor(
                executor=each.executor,
                worker=each.worker,
                host=each.host,
                pid=each.pid,
                slots=each.slots,
                state=each.state,
                spark_master=each.spark_master,
            )
            for each in status.executors
        ),
        outputs=tuple(
            Output(
                processor=each.processor,
                target=each.target,
                messages=each.messages,
                guarantee=each.guarantee,
            )
            for each in status.outputs
        ),
        accumulators=status.accumulators,
        checkpoints=_checkpoints(status.checkpoints, status.checkpoints_now_ms),
        error=error_of(status.error),
        errors=tuple(error for view in status.errors if (error := error_of(view)) is not None),
        printed=status.printed,
    )


def error_of(view: ErrorView | None) -> ErrorReport | None:
    """An error that was raised in the cluster."""
    if view is None:
        return None
    return ErrorReport(
        code=view.code,
        what=view.what,
        where=view.where,
        expected=view.expected,
        got=view.got,
        remedy=view.remedy,
        user_traceback=view.user_traceback,
    )


def _fragment(view: FragmentView) -> Fragment:
    return Fragment(
        fragment=view.fragment,
        state=view.state,
        attempt=view.attempt,
        executor=view.executor,
        worker=view.worker,
        batch_id=view.batch_id,
        batch_ms=view.batch_ms,
        messages=view.rows_total,
        messages_per_s=view.rows_per_s,
        lag_messages=view.lag_rows,
        clock_ms=view.clock_ms,
        clock_delay_ms=view.watermark_delay_ms,
        stalled_ms=view.stalled_ms,
        waiting_for=view.waiting_for,
        blocked_by=view.blocked_by,
        silent_partitions=len(view.figures.silent_partitions),
        error=error_of(view.error),
        figures=figures_of(view.figures),
    )


def _channel(view: ChannelProgress) -> Channel:
    return Channel(
        channel=view.channel,
        producer=view.producer,
        subscriber=view.subscriber,
        clock_ms=view.clock_ms,
        lag_messages=view.lag_rows,
        lag_bytes=view.lag_bytes,
        lag_ms=view.lag_ms,
        unacknowledged_messages=view.unacknowledged_rows,
        unacknowledged_bytes=view.unacknowledged_bytes,
        window_messages=view.window_rows,
        window_bytes=view.window_bytes,
        blocked_ms=view.blocked_ms,
        losses=view.losses,
        replays=view.replays,
        kept_bytes=view.kept_bytes,
    )


def _processor(id: str, counts: tuple[int, int, int, int], rates: Rates) -> Processor:
    taken, given, late, dead = counts
    per_s = rates.of(id)
    return Processor(
        processor=id,
        messages_in=taken,
        messages_out=given,
        late=late,
        dead_letters=dead,
        in_per_s=None if per_s is None else per_s[0],
        out_per_s=None if per_s is None else per_s[1],
    )


def _checkpoints(figures: CheckpointFigures | None, now_ms: int) -> Checkpoints | None:
    if figures is None:
        return None
    last = figures.last
    return Checkpoints(
        now_ms=now_ms,
        txid=figures.txid,
        phase=figures.phase.value,
        is_recovering=figures.recovering,
        running_ms=figures.running_ms,
        completed=figures.completed,
        failed=figures.failed,
        last=None
        if last is None
        else CompletedCheckpoint(
            txid=last.txid,
            as_of_ms=last.as_of_ms,
            started_ms=last.started_ms,
            duration_ms=last.duration_ms,
            size_bytes=last.bytes,
            fragment_ms=last.fragment_ms,
        ),
        failures=tuple(
            FailedCheckpoint(
                txid=failure.txid,
                action=None if failure.action is None else failure.action.value,
                at_ms=failure.at_ms,
                fragments=failure.fragments,
                reason=failure.reason,
            )
            for failure in figures.failures
        ),
    )
