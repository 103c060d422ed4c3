"""The status of a streaming application for followers, and the reasons why it waits.

Called by `stream_app_master` once the application is loaded.
"""

from __future__ import annotations

import msgspec

from drivetrain.cluster.app_master import waiting_reasons
from drivetrain.cluster.app_master.app_master import ApplicationMaster
from drivetrain.cluster.app_master.stream.application_lifecycle import ApplicationLifecycle
from drivetrain.cluster.app_master.stream.checkpoint_relay import CheckpointTraffic
from drivetrain.cluster.app_master.stream.running_job import RunningJob
from drivetrain.cluster.messages.following import JobState as ShownState
from drivetrain.cluster.messages.following import JobStatus
from drivetrain.core.job.job_events import JobState


def status_of(
    owner: ApplicationMaster,
    running: RunningJob,
    duties: ApplicationLifecycle,
    checkpoints: CheckpointTraffic,
    change: str | None,
) -> JobStatus:
    """The status of the application of `owner`; `change` is the one that is under way, in words."""
    prepared, progress = duties.requests.prepared, running.progress
    return msgspec.structs.replace(
        owner.base_status(ShownState(running.job.state.value)),
        life=1 if prepared is None else prepared.life,
        replay_from_ms=None if prepared is None else prepared.replay_from_ms,
        skipped=progress.skipped(),
        lost=progress.lost(),
        fragments=progress.views(owner.pool.find, running.clock.stall),
        outputs=progress.outputs(),
        counts=progress.counts(),
        accumulators=progress.accumulators(),
        fraction=progress.fraction(),
        printed=duties.requests.printed,
        checkpoints=checkpoints.figures,
        checkpoints_now_ms=owner.now_ms,
        disk_free=progress.disk_free,
        disk_total=progress.disk_total,
        change=change,
    )


def waiting_for(owner: ApplicationMaster, running: RunningJob, duties: ApplicationLifecycle) -> str | None:
    """The reason why the application cannot process or end yet; None while it processes."""
    job, requests = running.job, duties.requests
    match job.state:
        case JobState.RESTARTING:
            return waiting_reasons.RESTART
        case JobState.FAILING | JobState.CANCELLING:
            return waiting_reasons.fragments([e for e in job.executions if not e.is_terminal])
    if requests.is_under_way or requests.waits is not None:
        return requests.waiting_for()
    if requests.prepared is None or not owner.pool.ready:
        return waiting_reasons.executors(owner.pool)
    if not job.executions or job.is_open:
        return None
    return waiting_reasons.NOTED if job.state is JobState.CREATED else waiting_reasons.executors(owner.pool)
