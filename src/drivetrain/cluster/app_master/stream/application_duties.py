"""What is done once for a whole application: it is prepared, its job is begun, and its end is noted.

Problem: one executor prepares and concludes for all, and may die over it. Nothing may be deployed before the
application is prepared and the registry knows it.

Design: the order of things. The first executor that joins is asked to `Prepare`; the job begins when all
executors are there, or a moment later; when all fragments have finished, an executor is asked to `Conclude`.
Each step may be taken at any time, and does nothing unless it is time for it; who was asked, and what counts
as the answer, is kept by `errands`.

Invariants:
1. The state is forgotten (`fresh`), or begun anew by a replay, once each time it is asked for: that it was is
   in the registry before any fragment is deployed.
2. `Conclude` is asked for only when every fragment has finished; it may be asked twice when an executor dies
   over it.

Called by `stream_app_master` when something has happened, which hands on the answers, too.
"""

from __future__ import annotations

from typing import Final

from drivetrain.cluster.app_master.app_master import ApplicationMaster
from drivetrain.cluster.app_master.own_messages import Answered
from drivetrain.cluster.app_master.stream.checkpoint_relay import CheckpointTraffic
from drivetrain.cluster.app_master.stream.errands import Errands
from drivetrain.cluster.app_master.stream.running_job import RunningJob
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.executing import Conclude, Concluded, Prepare, Prepared, PrepareFailed
from drivetrain.cluster.messages.following import ErrorView, OutputView
from drivetrain.config.catalog import application as keys
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.core.job.job_events import JobState

PATIENCE: Final = "patience"
"""What the delay is called that ends with `patience_over`."""
PATIENCE_MS: Final = 10_000
"""How long a prepared application waits for the other executors before it begins with those it has."""


class Duties:
    """The duties for the job `running` of the application master `owner`."""

    def __init__(self, owner: ApplicationMaster, running: RunningJob, checkpoints: CheckpointTraffic) -> None:
        self._owner: Final = owner
        self._running: Final = running
        self._checkpoints: Final = checkpoints
        self.errands: Final = Errands(owner.ask, owner.config[keys.PREPARE_TIMEOUT])

    def take_up(self) -> None:
        """Do what it is time for: prepare, begin the job, conclude."""
        self.prepare()
        self.open()
        self.conclude()

    def prepare(self) -> None:
        """Have an executor prepare the application, unless it is prepared or this is under way."""
        owner, ready, errands = self._owner, self._owner.pool.ready, self.errands
        is_time = self._running.job.state in (JobState.CREATED, JobState.RUNNING) and owner.end_state is None
        if errands.prepared or errands.is_under_way or not ready or not is_time:
            return
        # No earlier epoch has prepared, else the registry's spec, which this one was launched with, says no.
        setup, spec = owner.setup, owner.setup.spec
        prepare = Prepare(setup.app_id, setup.epoch, spec.fresh, spec.replay_from_ms, spec.savepoint)
        errands.prepare(ready[0], prepare)
        owner.changed()

    def open(self) -> None:
        """Begin the job, once the application is prepared and the registry knows what it must know."""
        owner, job, prepared = self._owner, self._running.job, self.errands.prepared
        if prepared is None or owner.end_state is not None:
            return
        if owner.setup.spec.begins_anew and not owner.is_known_prepared:
            owner.report()  # when that is taken, this is called again
            return
        if job.state is JobState.CREATED:
            self._running.perform(job.start(eager=prepared.resumed))
        if len(owner.pool.ready) >= len(owner.pool.wanted):
            self._running.perform(job.open())
        elif not job.is_open:
            owner.wake(PATIENCE, 0, PATIENCE_MS)

    def patience_over(self) -> None:
        """Begin with the executors that are there."""
        if self.errands.prepared:
            self._running.perform(self._running.job.open())

    def conclude(self) -> None:
        """Have an executor note the end, once all fragments have finished and all is published."""
        owner, job, ready = self._owner, self._running.job, self._owner.pool.ready
        if not job.executions or job.state is not JobState.RUNNING:
            return
        is_time = all(e.state is ExecutionState.FINISHED for e in job.executions)
        if not is_time or not ready or self.errands.is_under_way or owner.end_state is not None:
            return
        if not self._checkpoints.is_all_published(self.conclude):
            return
        took_ms = max(0, owner.setup.clock_ms() - owner.started_ms)
        counts = self._running.progress.counts()
        message = Conclude(owner.setup.epoch, counts, self.outputs(), took_ms, FINAL_CLOCK_MS)
        self.errands.conclude(ready[0], message)
        owner.changed()

    def answered(self, answer: Answered) -> None:
        """An executor has prepared, or concluded, or could not."""
        owner, running = self._owner, self._running
        errand = self.errands.answered(answer)
        if errand is None or owner.end_state is not None:
            return
        owner.changed()
        match answer.answer:
            case Prepared() as prepared:
                for notice in prepared.notices:
                    owner.note(ErrorView("notice", notice))
                if prepared.finished:
                    owner.end(ApplicationState.SUCCEEDED)
                else:
                    self.open()
            case Concluded():
                running.perform(running.job.concluded())
            case PrepareFailed(error, retryable):
                owner.note(error)
                running.fail(error, retryable=retryable)
            case _:
                # It died over it, or does not answer: another one shall try.
                what, member = errand
                owner.stop_executor(member.id, f"it did not {what}: {answer.why}")
                self.prepare()
                self.conclude()

    def outputs(self) -> tuple[OutputView, ...]:
        """The sinks, with what they took; none before the application is prepared."""
        prepared = self.errands.prepared
        return () if prepared is None else self._running.progress.outputs(prepared.outputs)
