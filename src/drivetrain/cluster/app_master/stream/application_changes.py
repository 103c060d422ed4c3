"""Changes of an application that runs in a cluster: the shell around `core.change.live_change`.

Problem: what an embedded run does in one process (`spark.run.live_changes`) concerns several here: a client
asks, executors compile and run the versions, and any of them, or this process, may die between two steps.

Design: the state directory decides. This process records a version, and how its trial has ended, each with
one file, and only while it is the application master for which executors have prepared the application.
Executors read the files when they start a fragment, and when this process asks them to; they report what they
have seen and done, again and again, and this process compares that with what it has recorded. So no message
has to arrive, or to arrive once. `change_compiler` has everything compiled before anything is recorded.

| when | a change is |
|---|---|
| the application starts, its job starts again, a fragment starts | refused: no executor could compile it |
| a fragment is being scaled | refused, and no fragment is scaled during a change |
| the application goes back to a checkpoint or is started again | kept: the trial continues |
| a checkpoint or a savepoint is made | taken: a snapshot and a change of a fragment have the query's turn |
| the application ends | not begun; a trial that is under way ends first |

What if we die here: before the version is recorded nothing has changed, and the client gets no answer; after
it, the next application master resumes the trial (`begin`); after the outcome it is over.

Invariants:

1. One change at a time is compiled, recorded or on trial; another is refused by name.
2. A version is recorded only after every executor that runs a changed fragment has compiled it.
3. An application master that was replaced records nothing.
4. The application's end is recorded only when no trial is under way.

Called by `stream_app_master`, `running_job` and `application_lifecycle`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.actor import Message
from drivetrain.cluster.app_master.app_master_messages import RunAction
from drivetrain.cluster.app_master.blocking_work import in_thread, noted_and_repeated
from drivetrain.cluster.app_master.stream.application_scalings import ApplicationScalings
from drivetrain.cluster.app_master.stream.applied_versions import AppliedVersions
from drivetrain.cluster.app_master.stream.change_answers import ChangeAnswers, ChangeRequester, cannot_begin
from drivetrain.cluster.app_master.stream.change_compiler import ChangeCompiler
from drivetrain.cluster.app_master.stream.change_requests import ChangeRequests, RequestSteps
from drivetrain.cluster.app_master.stream.stage_recorder import StageRecorder
from drivetrain.cluster.app_master.stream.stored_versions import CompiledChange, StoredVersions, VersionsState
from drivetrain.cluster.app_master.stream.trial_events import ended_of, events_of, failure_of
from drivetrain.cluster.messages.changing import (
    ChangeGraph,
    GetChange,
    GetVersions,
    GiveUpChange,
    ScaleFragment,
    VersionReports,
)
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.core.change import change_events as trial
from drivetrain.core.change.change_events import Change, Outcome
from drivetrain.core.change.change_stages import StageName, in_words
from drivetrain.core.change.change_state import (
    ChangeState,
    ended_state,
    require_on_trial,
    show_end,
    show_handed_over,
    show_trial,
)
from drivetrain.core.change.handover import Handover
from drivetrain.core.change.live_change import LiveChange, Stage
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.runtime.change_history import ChangeHistory
from drivetrain.runtime.error_views import error_view

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.cluster.app_master.stream.running_job import RunningJob

_AGAIN_MS: Final = 2_000
"""How soon recording an outcome is tried again after a failure."""


class ApplicationChanges:
    """The changes of the application of `owner`, whose job is `running` and whose versions `stored` reads.

    `proposed` has changes compiled; `settled` is called when the state of the versions is known, when a trial
    is over, and when a fragment has left.
    """

    def __init__(
        self,
        owner: ApplicationMaster,
        running: RunningJob,
        stored: StoredVersions,
        proposed: ChangeCompiler,
        settled: Callable[[], None],
    ) -> None:
        self._owner: Final = owner
        self._running: Final = running
        self._stored: Final = stored
        self._settled: Final = settled
        self._core: Final = LiveChange()
        self._state: ChangeState | None = None  # None until the state directory is read
        self._compiled: CompiledChange | None = None  # of the change that is under way, unless it was resumed
        self._answers: Final = ChangeAnswers()
        self._applied: Final = AppliedVersions(owner, running, stored, self._handed_over, settled)
        self._reports, self._leaving = self._applied.reports, self._applied.leaving
        self._handover: Final = self._applied.handover
        self._is_reading = False
        self._kept: Final = StageRecorder(owner, stored)
        self._history = ChangeHistory(self._kept, deque())
        self._proposed: Final = proposed
        steps = RequestSteps(self._refusal, self._answer, self._reading_began, self._given_up, self._record)
        self._asking: Final = ChangeRequests(owner, running, stored, proposed, steps)
        refusal = functools.partial(self._refusal, None)
        self.scalings: Final = ApplicationScalings(
            owner, running, stored.scalings, refusal, self._shown_state, settled
        )
        running.fragment_failed = self._fragment_failed

    # ---- queries

    @property
    def is_under_way(self) -> bool:
        """Whether a change is recorded, or being recorded, and has not ended."""
        return self._core.stage is not Stage.IDLE

    @property
    def in_words(self) -> str | None:
        """The change that is under way, in words."""
        return self._shown_state().in_words

    @property
    def is_known(self) -> bool:
        """Whether it is known which version is in force, and so which fragments run."""
        return self._state is not None or not self._stored.can_change

    @property
    def is_changing(self) -> bool:
        """Whether a change or a scaling is under way, or waits for former messages, or a fragment has yet to
        leave."""
        is_under_way = self.is_under_way or self._asking.is_reading or self.scalings.is_under_way
        return is_under_way or bool(self._leaving.names)

    @property
    def settled_version(self) -> int:
        """The version in force once it is not on trial, 0 before that is known."""
        return 0 if self._reports.is_trial else self._reports.number

    # ---- events

    def begin(self) -> None:
        """The application is prepared: read which version is in force, and resume its trial."""
        if not self.is_known and not self._is_reading:
            self._is_reading = True
            in_thread(self._owner, self._stored.begin, self._begun, self._not_begun)

    def _begun(self, state_read: VersionsState) -> None:
        self._is_reading = False
        self._state = state_read.state
        self.scalings.resume(state_read.scaling)
        self._applied.apply(state_read)
        if state_read.change is not None or state_read.handover is not None:
            self._kept.known = state_read.stages
            self._history.resume(state_read.state.version)
        if state_read.change is not None:
            self._running.job.spared = frozenset(state_read.change.may_fail_before_a_batch)
            self._take(trial.ChangeResumed(state_read.change))
        self._settled()

    def _not_begun(self, error: Exception) -> None:
        self._is_reading = False
        self._owner.note(error_view(error))
        self._owner.context.timers.start_once("versions", RunAction(self.begin), delay_ms=_AGAIN_MS)

    def received(self, message: Message) -> bool:
        """Handle a message about changes; False for any other message."""
        asker = self._owner.context.sender
        match message:
            case VersionReports():
                if message.epoch == self._owner.setup.epoch:
                    self._note_seen(message)
                self._leaving.look()
            case ChangeGraph(only_makes=True) if asker is not None:
                tell = functools.partial(self._answers.tell, asker, self._shown_state())
                self._proposed.show(message, tell)
            case ChangeGraph() if asker is not None:
                self.ask(message, asker)
            case GiveUpChange(number) if asker is not None:
                self._give_up(number, asker)
            case ScaleFragment() if asker is not None:
                self.scalings.asked(message, asker)
            case GetChange() if asker is not None:
                self._answer(asker)
            case GetVersions(before) if asker is not None:
                page = functools.partial(self._stored.page, before)
                in_thread(self._owner, page, asker.tell, lambda error: self._owner.note(error_view(error)))
            case _:
                return False
        return True

    def beat(self) -> None:
        """Have executors look again if they have not seen the version in force; notice fragments that
        ended."""
        change = self._core.change
        self._judge([] if change is None else ended_of(change, self._running.job))
        self._handover.look()
        self._asking.look()
        self.scalings.beat()
        if self._state is not None and self._is_between_steps():
            self._applied.look(self._is_between_steps)

    def _is_between_steps(self) -> bool:
        return self._core.stage in (Stage.IDLE, Stage.ON_TRIAL)

    def _note_seen(self, message: VersionReports) -> None:
        for seen in self._reports.take(message):
            change = self._core.change
            self._judge([] if change is None else events_of(seen, change))
            self._handover.seen(seen)
            self._asking.seen(seen)
            self.scalings.seen(seen)
        self._asking.look()
        self._answer_taken()

    def _fragment_failed(self, fragment: str, error: ErrorView) -> None:
        change = self._core.change
        failed = None if change is None else failure_of(fragment, error, change)
        self._judge([] if failed is None else [failed])

    def _judge(self, events: list[trial.Event]) -> None:
        """Process the fragments' reports about the version on trial."""
        for event in events:
            if self._core.stage is not Stage.ON_TRIAL:
                return
            self._take(event)

    # ---- requests

    def ask(self, message: ChangeGraph, asker: ChangeRequester) -> None:
        """Have a change made that a client asks for, or this process."""
        goes_back_to = message.number if message.options.at is None else 0
        error = self._refusal(None) or self._handover.refusal(goes_back_to)
        if error is not None:
            self._answer(asker, error)
            return
        self._history = ChangeHistory(self._kept, deque())
        self._history.reach(StageName.PROPOSED)
        self._asking.compile(message, asker)

    def _refusal(self, compiled: CompiledChange | None) -> DrivetrainError | None:
        """Why no change can begin now, or this one cannot be recorded; None if it can."""
        is_asked = self._asking.is_compiling or self.scalings.is_asked
        is_busy = (is_asked, self.is_under_way or self._asking.is_reading)
        state = None if self._state is None else self._shown_state()
        error = cannot_begin(self._owner, self._running, state, is_busy)
        if error is not None or compiled is None:
            return error
        if compiled.against != self._reports.number:
            return UnavailableError("the application has changed meanwhile", remedy="try again")
        return self._leaving.refusal(compiled.change.starts)

    def _record(self, compiled: CompiledChange, asker: ChangeRequester | None) -> None:
        """Record a change that is compiled, and whose fragments stand between two batches if they must."""
        self._compiled = compiled
        self._history.reach(StageName.COMPILED if compiled.history is None else StageName.HISTORY_READ)
        if asker is not None:
            self._answers.wait(compiled.change.number, asker)
        self._take(trial.ChangeProposed(compiled.change))

    def _reading_began(self, asker: ChangeRequester) -> None:
        """A change waits for its former messages, which may take hours."""
        self._history.reach(StageName.COMPILED)
        state = self._shown_state()
        if state.history is not None:
            self._notice(state.history.of_change(state.number))
        self._answer(asker)

    def _given_up(self, compiled: CompiledChange, error: Exception) -> None:
        """Former messages could not be read, or the change was cancelled before."""
        self._tell_end(trial.ReportOutcome(compiled.change, Outcome.REFUSED, None, str(error)))

    def _give_up(self, number: int, asker: ChangeRequester) -> None:
        if self._asking.cancel(number):
            self._answer(asker)
            return
        try:
            require_on_trial(self._state or ChangeState(0), number)
        except DrivetrainError as error:
            self._answer(asker, error)
            return
        self._take(trial.ChangeGivenUp("the change was cancelled"))
        self._answer(asker)

    def _answer(self, asker: ChangeRequester, error: Exception | None = None) -> None:
        self._answers.tell(asker, self._shown_state(), error)

    def _shown_state(self) -> ChangeState:
        shown = self._asking.history.shown(self._handover.shown(self._state or ChangeState(0)))
        return msgspec.structs.replace(shown, scaling=self.scalings.state)

    def _answer_taken(self) -> None:
        """Answer clients whose version every changed fragment has taken up, or whose change has ended."""
        self._answers.tell_taken(self._shown_state(), self._is_being_taken)

    def _is_being_taken(self, number: int) -> bool:
        change = self._core.change
        if self._core.stage is Stage.PROPOSED:
            return True
        return change is not None and change.number == number and bool(self._reports.behind(change.touched))

    # ---- effects

    def _take(self, event: trial.Event) -> None:
        self._history.saw(event)
        effects, change = self._core.step(event), self._core.change
        if change is not None:
            number = change.before if self._core.stage is Stage.PROPOSED else change.number
            self._show(
                ChangeState(number, self._core.stage, change.number, change.before, self._core.awaited)
            )
        for effect in effects:
            self._perform(effect)

    def _show(self, state: ChangeState) -> None:
        self._state = msgspec.structs.replace(state, stages=self._history.stages)
        self._owner.changed()

    def _perform(self, effect: trial.Effect) -> None:
        match effect:
            case trial.RecordVersion(change):
                assert self._compiled is not None
                record = functools.partial(self._stored.record, self._compiled)
                in_thread(self._owner, record, functools.partial(self._recorded, change), self._not_recorded)
            case trial.UseVersion():
                self._reports.poll()
            case trial.RecordOutcome():
                record = functools.partial(self._stored.record_outcome, effect)
                then = functools.partial(self._outcome_recorded, effect)
                repeat = functools.partial(self._perform, effect)  # the trial cannot end without it
                again = noted_and_repeated(self._owner, "change outcome", repeat, _AGAIN_MS)
                in_thread(self._owner, record, then, again)
            case trial.ReportOutcome():
                self._tell_end(effect)

    def _recorded(self, change: Change, state_read: VersionsState) -> None:
        self._running.job.spared = frozenset(change.may_fail_before_a_batch)
        self._history.recorded(change.number)
        for notice in self._asking.history.notices:
            self._notice(notice)
        self._asking.recorded()
        if self._compiled is not None:
            progress = self._running.progress
            progress.shown_before, progress.shown = progress.shown, self._compiled.shown
        self._applied.apply(state_read)  # new fragments start with that
        self._running.perform(self._running.job.code_changed(change.touched))
        handover = state_read.handover
        self._notice(show_trial(change, None if handover is None else handover.at_ms))
        self._take(trial.VersionRecorded())

    def _not_recorded(self, error: Exception) -> None:
        self._asking.not_recorded(error)
        self._take(trial.RecordingFailed(str(error)))

    def _handed_over(self, handover: Handover) -> None:
        self._history.handed_over(handover.number)
        self._notice(show_handed_over(handover))
        if self._state is not None:
            self._show(self._state)

    def _outcome_recorded(self, _: trial.RecordOutcome, state_read: VersionsState) -> None:
        progress = self._running.progress
        if self._core.stage is Stage.GOING_BACK:
            progress.shown = progress.shown_before or progress.shown
        self._applied.apply(state_read)
        self._leaving.run_again()
        self._take(trial.OutcomeRecorded())

    def _tell_end(self, ended: trial.ReportOutcome) -> None:
        self._history.reach(ended.outcome)
        self._show(ended_state(ended, self._reports.number))
        self._compiled = None
        self._notice(f"{show_end(ended)} ({in_words(self._history.stages)})")
        self._reports.poll()
        self._answer_taken()
        self._owner.report()
        self._settled()

    def _notice(self, text: str) -> None:
        self._owner.note(ErrorView("notice", text))
