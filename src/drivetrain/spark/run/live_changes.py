"""Changes of an application while it runs embedded: the shell around `core.change.live_change`.

Problem: a change is requested in one thread and must be compiled before anything takes effect. It takes
effect between two batches of each fragment, in threads of Spark, and the polling thread monitors it.

Design: `propose` checks and compiles the change in its caller's thread; if it raises, nothing has changed.
The compiled change waits for `step`, which the loop calls: it steps the core, performs its effects in order,
and ensures that every fragment switches to the right version; a fragment that was restarted meanwhile is
compiled again. When a fragment fails, its driver calls `goes_back`.

What if we die here: before `RecordVersion` the change is forgotten; after it the next process begins with the
new version and resumes the trial; after `RecordOutcome` the trial is over.

Invariants:

1. A change that does not compile changes nothing.
2. An application goes back only to a version that can be loaded.

Called by `embedded_loop` (`step`, `goes_back`) and `control_answers` (`propose`, `state`).
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.core.change import change_events as trial
from drivetrain.core.change.change_events import Change, Outcome
from drivetrain.core.change.change_stages import StageName, in_words
from drivetrain.core.change.change_state import ChangeState, ended_state, require_on_trial, show_end, underway
from drivetrain.core.change.handover_places import HandoverError
from drivetrain.core.change.live_change import LiveChange, Stage
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.runtime.change_history import ChangeHistory
from drivetrain.runtime.running_config import RunningConfig
from drivetrain.spark.checkpoints.participation import RestoreNeededError
from drivetrain.spark.run.change_proposal import Proposal, RequestedChange, begun_notices, checked
from drivetrain.spark.run.fragment_versions import why_it_failed
from drivetrain.spark.run.handovers import Handovers
from drivetrain.spark.run.history_readers import HistoryError
from drivetrain.spark.run.message_histories import MessageHistories
from drivetrain.spark.run.recovery import SteppingThread
from drivetrain.spark.run.scaling import Scaling
from drivetrain.spark.run.starting_fragments import started
from drivetrain.spark.run.trial_progress import SeenProgress, TrialProgress
from drivetrain.spark.run.wanted_versions import WantedVersions
from drivetrain.spark.run.withdrawn_sinks import WithdrawnSinks

if TYPE_CHECKING:
    from drivetrain.core.change.scaling_state import PlannedScaling, ScalingState
    from drivetrain.spark.batch.query_versions import QueryVersions
    from drivetrain.spark.repair.steps import Steps
    from drivetrain.spark.run.application_versions import ApplicationVersions
    from drivetrain.spark.run.execution import Execution
    from drivetrain.spark.run.fragment_changes import FragmentChanges
    from drivetrain.spark.run.fragment_driver import FragmentDriver
    from drivetrain.spark.run.recovery import SteppedWork

_LOOK_S: Final = 0.1  # how often a thread that waits for the loop checks whether the run has ended


class LiveChanges:
    """The changes of the application `execution`, whose fragments `drivers` drive, by id."""

    def __init__(
        self,
        execution: Execution,
        drivers: Mapping[str, FragmentDriver],
        fragments: FragmentChanges,
        begin: Callable[[str, Steps[None]], SteppedWork] = SteppingThread,
    ) -> None:
        assert execution.versions is not None, "an application that cannot change"
        self.versions: Final[ApplicationVersions] = execution.versions
        self._execution: Final = execution
        self._drivers: Final = drivers
        self._fragments: Final = fragments
        self._core: Final = LiveChange()
        self._proposal: Proposal | None = None  # of the change that is under way, unless it was resumed
        self._state = ChangeState(self.versions.in_force.record.number)  # replaced whole: threads read it
        self._reserved = threading.Lock()  # held from the first look at a change until it has ended
        self._rolled_back: set[int] = set()  # fragments may still run a batch with one, and fail too
        self._withdrawn: Final = WithdrawnSinks(self.versions, drivers)
        self._handovers: Final = Handovers(self.versions, drivers)
        self._wanted: Final = WantedVersions(self.versions, drivers, self._handovers)
        self._history: Final = ChangeHistory(execution.rundir.versions, self.versions.notices)
        self._histories: Final = MessageHistories(execution, drivers, begin)
        self.scaling: Final = Scaling(execution, drivers, self._reserved)
        config = RunningConfig(execution.rundir.path, self.versions.in_force.context.config)
        self._trials: Final = defaultdict[str, TrialProgress](lambda: TrialProgress(config))
        self._given_up: int | None = None
        self._is_over = False
        self._ended: Change | None = None  # the last change whose outcome is recorded

    # -- for any thread --------------------------------------------------------------------------------

    @property
    def state(self) -> ChangeState:
        """The state of the change; may be one step old."""
        state, handover = self._state, self._handovers.handover
        more = {"scaling": self.scaling.state, "history": self._histories.state}
        state = msgspec.structs.replace(state, stages=self._history.stages, **more)
        if handover is None or handover.number != state.version:
            return state
        both, clock_ms = self._handovers.both, self._handovers.clock_ms
        return msgspec.structs.replace(state, at_ms=handover.at_ms, both=both, clock_ms=clock_ms)

    def propose(self, asked: RequestedChange) -> int:
        """Check and compile a change; returns the number that its version will get.

        Raises ChangeUnderwayError, UserError if the application cannot change this way, and compilation
        errors.
        """
        self._refuse_when_stopping("run it with the new graph once it has stopped")
        if not self._reserved.acquire(blocking=False):
            self._refuse_underway()
        try:
            self._handovers.refuse_change(asked)
            with self._history.begun():
                made = checked(self.versions, self._drivers, asked, start=partial(started, self._execution))
                self._withdrawn.refuse(made.loaded.sinks)
                made = self._histories.prepared(made, asked.options.history_ms)
        except BaseException:
            self._reserved.release()
            raise
        self._state = ChangeState(made.change.before, Stage.PROPOSED, made.change.number, made.change.before)
        self._history.reach(StageName.COMPILED)
        self._histories.start(made)
        self._proposal = made
        return made.change.number

    def scale(self, fragment: str, partitions: int) -> ScalingState:
        """Begin to divide the state of a fragment into other partitions; see `Scaling.propose`.

        Raises ChangeUnderwayError too, and UnavailableError when the application is stopping.
        """
        self._refuse_when_stopping("run it again, and scale it then")
        return self.scaling.propose(fragment, partitions, self._refuse_underway)

    def planned_scaling(self, fragment: str, partitions: int) -> PlannedScaling:
        """What `scale` would do; raises its errors about the fragment or the number."""
        return self.scaling.planned(fragment, partitions)

    def _refuse_underway(self) -> None:
        raise underway(self.state)

    def _refuse_when_stopping(self, remedy: str) -> None:
        if self._is_over:
            raise UnavailableError("the application is stopping", remedy=remedy)

    def wait_taken(self, number: int) -> None:
        """Wait until the loop has adopted a proposed change: then no batch begins with the previous version.

        It does not wait for a change whose history is read first: that may take hours. Raises
        UnavailableError when the run ends first, and HandoverError when its time is no longer valid.
        """
        proposal = self._proposal
        if proposal is None or proposal.change.number != number or proposal.histories:
            return  # it has ended already, or will take long
        while not proposal.taken.wait(_LOOK_S):
            if self._is_over and not proposal.taken.is_set():
                raise UnavailableError(
                    "the application has stopped before the change took effect",
                    remedy="run it with the new graph",
                )
        for refused in proposal.refused:
            raise refused

    def give_up(self, number: int) -> None:
        """Roll back a version that is on trial, or whose history is read; raises UserError if none is."""
        state = self.state
        if state.is_reading_history and state.number == number:
            self._histories.give_up("before its history was read")
            return
        require_on_trial(state, number)
        self._given_up = number

    # -- for the thread that polls -----------------------------------------------------------------------

    def resume(self) -> None:
        """Resume the trial of an earlier process, before any query starts."""
        self._withdrawn.resume()
        self._handovers.resume()
        record = self.versions.in_force.record
        for fragment in self._handovers.both:
            self._wanted.want(fragment, record.number)
        if self._handovers.handover is not None:
            self._history.resume(record.number)
        change = self.versions.left_on_trial()
        self._fragments.resume(change)
        if change is not None:
            if self._handovers.handover is None:
                self._history.resume(record.number)
            self._reserved.acquire()
            self._take(trial.ChangeResumed(change))
        self._switch_fragments()

    def step(self) -> None:
        """Advance the current change by one step; raises when it cannot be recorded."""
        if self._proposal is not None and self._core.stage is Stage.IDLE:
            self._take_up(self._proposal)
        self._look_whether_given_up()
        handover = self._handovers.handover
        self._handovers.look()
        if handover is not None and self._handovers.handover is None:
            self._history.handed_over(handover.number)
        self._look()
        self._switch_fragments()
        self.scaling.look()
        self._withdrawn.look()
        self._fragments.look()

    @property
    def outside_notices(self) -> deque[str]:
        """Notices about other applications that read; the code that shows a notice removes it."""
        return self._execution.flow.notices

    @property
    def is_busy(self) -> bool:
        """Whether a fragment has yet to leave, or to start: until then the application has not finished."""
        return self._fragments.is_busy or self._histories.is_reading

    def _take_up(self, proposal: Proposal) -> None:
        try:
            with (
                self._handovers.paused(proposal) as timed,
                self._histories.completed(timed) as ready,
            ):
                if ready is None:
                    return  # its history is not read, or batches of affected fragments have not ended yet
                if ready.histories:
                    self._history.reach(StageName.HISTORY_READ)
                self._proposal = ready
                self._take(trial.ChangeProposed(ready.change))
                self._switch_fragments()
        except (HandoverError, HistoryError, UnavailableError) as error:
            if self._core.stage is not Stage.IDLE:
                raise
            proposal.refused.append(error)
            self._end(trial.ReportOutcome(proposal.change, Outcome.REFUSED, None, str(error)))
        proposal.taken.set()

    def close(self) -> None:
        """The run ends: further changes are refused."""
        self._is_over = True
        self._histories.close()

    def goes_back(self, driver: FragmentDriver, error: BaseException) -> bool:
        """Whether a fragment failed because of a version that is or was on trial, or that was replaced.

        It then runs the version in force. A replaced version only runs the batch that a crash interrupted: as
        that has failed now, any version may run it.
        """
        versions = driver.query.versions
        if versions is None or not isinstance(error, Exception) or isinstance(error, RestoreNeededError):
            return False
        number, wanted = self._wanted.trunks.version_of(driver), self._wanted.of(driver.fragment)
        is_left = number in self._rolled_back or versions.has_left(driver.query.batch_id + 1)
        is_left = is_left or self._wanted.trunks.has_left(driver, wanted)
        if not is_left and not self._end_trial(driver.fragment, number, versions, error):
            return False
        if driver.fragment not in self._drivers:
            return True  # it was new with the version, and has left
        driver.replace_query(lambda query: self._execution.fragment(query.fragment.id, counts=query.counts))
        self._switch_fragments()
        return True

    def _end_trial(self, fragment: str, number: int, versions: QueryVersions, error: Exception) -> bool:
        """Roll back if the fragment has failed because of the version on trial."""
        change = self._core.change
        if change is None or self._core.stage is not Stage.ON_TRIAL or number != change.number:
            return False
        began = versions.began(number)
        if fragment not in change.touched or (
            began is None and fragment not in change.may_fail_before_a_batch
        ):
            return False
        if not self._can_load(change.before):
            return False
        if began is not None:
            self._take(trial.BatchBegan(fragment, began))
        self._take(trial.BatchFailed(fragment, why_it_failed(error)))
        return True

    def _can_load(self, number: int) -> bool:
        try:
            self.versions.of_number(number)
        except DrivetrainError as error:
            self.versions.notices.append(f"the application cannot go back to version {number}: {error}")
            return False
        return True

    def _look_whether_given_up(self) -> None:
        change, number, self._given_up = self._core.change, self._given_up, None
        if change is None or number != change.number or self._core.stage is not Stage.ON_TRIAL:
            return
        if self._can_load(change.before):
            self._take(trial.ChangeGivenUp("the change was cancelled"))

    def _look(self) -> None:
        change = self._core.change
        for fragment in () if change is None else sorted(change.touched):
            if self._core.stage is not Stage.ON_TRIAL or change is None:
                return
            driver, seen = self._drivers[fragment], self._progress(fragment, change.number)
            if seen.began is not None:
                self._take(trial.BatchBegan(fragment, seen.began))
            if seen.has_shown and seen.began is not None:
                self._take(trial.BatchCommitted(fragment))
            elif seen.has_shown or driver.is_finished:
                self._take(trial.FragmentEnded(fragment))
            elif seen.has_waited:
                self._take(trial.FragmentWaited(fragment))

    def _progress(self, fragment: str, number: int) -> SeenProgress:
        is_timed = self.versions.in_force.record.at_ms is not None
        has_proven = fragment in self._handovers.proven if is_timed else None
        return self._trials[fragment].look(self._drivers[fragment], number, has_proven)

    def _switch_fragments(self) -> None:
        """Switch every fragment to the version that it should run."""
        self._wanted.look(self._core.change, self._proposal)

    # -- effects -----------------------------------------------------------------------------------------

    def _take(self, event: trial.Event) -> None:
        self._history.saw(event)
        effects, change = self._core.step(event), self._core.change
        if change is not None:
            self._show(self._core.stage, change, self._core.awaited)
        for effect in effects:
            self._perform(effect)

    def _show(self, stage: Stage, change: Change, awaited: tuple[str, ...]) -> None:
        number = self.versions.in_force.record.number
        self._state = ChangeState(number, stage, change.number, change.before, awaited)

    def _perform(self, effect: trial.Effect) -> None:
        match effect:
            case trial.RecordVersion():
                self._record_version()
            case trial.UseVersion(fragment, number):
                self._wanted.want(fragment, number)
            case trial.StartFragment(fragment):
                assert self._proposal is not None
                self._fragments.start(self._proposal.queries[fragment])
            case trial.DropFragment(fragment, goes_back):
                self._wanted.forget(fragment)
                assert self._ended is not None
                self._fragments.remove_fragment(fragment, self._ended, goes_back=goes_back)
            case trial.RecordOutcome(change, outcome, fragment, why):
                maybe_crash(CrashPoint.BEFORE_OUTCOME)
                if outcome is Outcome.ROLLED_BACK:
                    self._withdrawn.note(change, fragment, why)
                    self._rolled_back.add(change.number)
                    self.versions.put_in_force(change.before)
                    self._handovers.go_back()
                else:
                    self._fragments.note_done(change)
                self._ended = change
                maybe_crash(CrashPoint.AFTER_OUTCOME)
                self._take(trial.OutcomeRecorded())
            case trial.ReportOutcome() as ended:
                self._end(ended)

    def _end(self, ended: trial.ReportOutcome) -> None:
        if ended.outcome is Outcome.ROLLED_BACK:
            self._fragments.go_back()
        self._history.reach(ended.outcome)
        self._state = ended_state(ended, self.versions.in_force.record.number)
        self._proposal = None
        self.versions.notices.append(f"{show_end(ended)} ({in_words(self._history.stages)})")
        self._reserved.release()  # last: from now on another change has the state and the proposal

    def _record_version(self) -> None:
        proposal = self._proposal
        assert proposal is not None
        maybe_crash(CrashPoint.BEFORE_VERSION)
        try:
            record = self._execution.rundir.versions.note(
                proposal.loaded.record, proposal.made_how, proposal.code
            )
        except DrivetrainError as error:
            self._take(trial.RecordingFailed(str(error)))
            return
        maybe_crash(CrashPoint.AFTER_VERSION)
        self.versions.recorded(proposal.loaded, record)
        self._fragments.hold(proposal.change)
        self.versions.put_in_force(record.number)
        self._history.recorded(record.number)
        self._handovers.withdraw()
        if record.at_ms is not None:
            self._handovers.begin(record, proposal.change.touched)
        self.versions.notices.extend(begun_notices(record, proposal.change, proposal.loaded.context))
        self._take(trial.VersionRecorded())
