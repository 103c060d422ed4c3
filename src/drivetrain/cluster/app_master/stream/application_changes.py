"""Changes of an application that runs in a cluster: the shell around `core.change.live_change`.

Problem: what an embedded run does in one process (`spark.run.live_changes`) concerns several here: a client
asks, executors compile and run the versions, and any of them, and this process, may die between two steps.

Design: the state directory decides. This process records a version, and how its trial has ended, each with
one file, and only while it is the application master for which executors have prepared the application.
Executors read the files when they start a fragment, and when this process asks them to; they report what they
have seen and done, again and again, and this process compares that with what it has recorded. So no message
has to arrive, or to arrive once. `proposed_change` has everything compiled before anything is recorded.

| when | a change is |
|---|---|
| the application starts, its job starts again, a fragment starts | refused: nobody could compile it |
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

Called by `stream_app_master`, `running_job` and `application_duties`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.app_master.app_master_messages import Call
from drivetrain.cluster.app_master.stream.attempt_reports import AttemptReports
from drivetrain.cluster.app_master.stream.change_answers import ChangeAnswers
from drivetrain.cluster.app_master.stream.proposed_change import ProposedChange
from drivetrain.cluster.app_master.stream.stored_versions import Compiled, StoredVersions
from drivetrain.cluster.app_master.stream.stream_progress import Shown
from drivetrain.cluster.messages.changing import (
    ChangeGraph,
    GetChange,
    GetVersions,
    GiveUpChange,
    SeenVersion,
    VersionsSeen,
)
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.core.change.change_state import ChangeState, require_on_trial, show_end, underway
from drivetrain.core.change.live_change import (
    BatchBegan,
    BatchCommitted,
    BatchFailed,
    Change,
    ChangeGivenUp,
    ChangeProposed,
    ChangeResumed,
    Effect,
    Event,
    FragmentEnded,
    LiveChange,
    OutcomeRecorded,
    RecordingFailed,
    RecordOutcome,
    RecordVersion,
    Stage,
    TellEnd,
    UseVersion,
    VersionRecorded,
)
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.core.job.job_events import JobState
from drivetrain.crash_points import CrashPoint, reached
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.runtime.error_views import error_view

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.cluster.app_master.stream.running_job import RunningJob

T = TypeVar("T")

_AGAIN_MS: Final = 2_000
"""How soon an outcome is recorded again that could not be."""


class ApplicationChanges:
    """The changes of the application of `owner`, whose job is `running` and whose versions `stored` reads.

    `proposed` has changes compiled; `settled` is called when a trial is over.
    """

    def __init__(
        self,
        owner: ApplicationMaster,
        running: RunningJob,
        stored: StoredVersions,
        proposed: ProposedChange,
        settled: Callable[[], None],
    ) -> None:
        self._owner: Final = owner
        self._running: Final = running
        self._stored: Final = stored
        self._proposed: Final = proposed
        self._settled: Final = settled
        self._core: Final = LiveChange()
        self._state: ChangeState | None = None  # None until the state directory is read
        self._compiled: Compiled | None = None  # of the change that is under way, unless it was resumed
        self._shown_before: Shown | None = None  # of the version to which a trial goes back
        self._is_compiling = False
        self._answers: Final = ChangeAnswers()
        self._number = 0  # the version in force, and whether it is on trial: what attempts have to see
        self._is_trial = False
        self._reports: Final = AttemptReports(owner, running)

    # ---- queries

    @property
    def is_under_way(self) -> bool:
        """Whether a change is recorded, or being recorded, and has not ended."""
        return self._core.stage is not Stage.IDLE

    @property
    def settled_version(self) -> int:
        """The version in force once it is not on trial, 0 before that is known."""
        return 0 if self._is_trial else self._number

    # ---- events

    def begin(self) -> None:
        """The application is prepared: read which version is in force, and resume its trial."""
        if self._state is None and self._stored.can_change:
            self._in_thread(
                self._stored.stands, self._begun, lambda error: self._owner.note(error_view(error))
            )

    def _begun(self, found: tuple[ChangeState, Change | None]) -> None:
        self._state, resumed = found
        self._number = self._state.version
        if resumed is not None:
            self._is_trial = True
            self._take(ChangeResumed(resumed))

    def received(self, message: Message) -> bool:
        """Handle a message about changes; False for any other message."""
        asker = self._owner.context.sender
        match message:
            case VersionsSeen():
                if message.epoch == self._owner.setup.epoch:
                    self._note_seen(message)
            case ChangeGraph() if asker is not None:
                self._asked(message, asker)
            case GiveUpChange(number) if asker is not None:
                self._give_up(number, asker)
            case GetChange() if asker is not None:
                self._answer(asker)
            case GetVersions(before) if asker is not None:
                page = functools.partial(self._stored.page, before)
                self._in_thread(page, asker.tell, self._note)
            case _:
                return False
        return True

    def beat(self) -> None:
        """Have executors look again that have not seen the version in force; notice fragments that ended."""
        self._end_with_fragments()
        if self._state is not None and self._core.stage in (Stage.IDLE, Stage.ON_TRIAL):
            self._have_look()

    def _note_seen(self, message: VersionsSeen) -> None:
        for seen in self._reports.take(message):
            self._judge(seen)
        self._answer_taken()

    def _judge(self, seen: SeenVersion) -> None:
        """Take what an attempt has done with the version on trial."""
        change = self._core.change
        if self._core.stage is not Stage.ON_TRIAL or change is None or seen.number != change.number:
            return
        if seen.fragment not in change.touched or seen.began is None:
            return
        self._take(BatchBegan(seen.fragment, seen.began))
        if seen.has_committed:
            self._take(BatchCommitted(seen.fragment))
        elif seen.failure is not None:
            self._take(BatchFailed(seen.fragment, seen.failure))

    def _end_with_fragments(self) -> None:
        change = self._core.change
        for fragment in () if change is None else sorted(change.touched):
            execution = self._running.job.execution(fragment)
            if (
                self._core.stage is Stage.ON_TRIAL
                and execution is not None
                and execution.state is ExecutionState.FINISHED
            ):
                self._take(FragmentEnded(fragment))

    # ---- requests

    def _asked(self, message: ChangeGraph, asker: ActorRef) -> None:
        error = self._refusal()
        if error is not None:
            self._answer(asker, error)
            return
        self._is_compiling = True
        self._owner.context.pipe_to_self(
            self._proposed.compiled(message),
            lambda compiled: Call(functools.partial(self._propose, compiled, asker)),
            lambda error: Call(functools.partial(self._give_up_compiling, error, asker)),
        )

    def _refusal(self) -> DrivetrainError | None:
        """Why no change can begin now; None if one can."""
        if self._state is None:
            why = "the application has not begun"
        elif self._owner.end_state is not None:
            why = "the application is stopping"
        elif self._is_compiling or self.is_under_way:
            state = self._state
            return underway(state if self.is_under_way else msgspec.structs.replace(state, number=0))
        elif self._running.job.state is not JobState.RUNNING:
            why = "the application is starting again"
        else:
            return None
        return UnavailableError(why, where=self._owner.setup.app_id, remedy="try again")

    def _propose(self, compiled: Compiled, asker: ActorRef) -> None:
        self._is_compiling = False
        error = self._refusal()
        if error is None and compiled.against != self._number:
            error = UnavailableError("the application has changed meanwhile", remedy="try again")
        if error is not None:
            self._answer(asker, error)
            return
        self._compiled = compiled
        self._answers.wait(compiled.change.number, asker)
        self._take(ChangeProposed(compiled.change))

    def _give_up_compiling(self, error: Exception, asker: ActorRef) -> None:
        self._is_compiling = False
        self._answer(asker, error)

    def _give_up(self, number: int, asker: ActorRef) -> None:
        try:
            require_on_trial(self._state or ChangeState(0), number)
        except DrivetrainError as error:
            self._answer(asker, error)
            return
        self._take(ChangeGivenUp("the change was given up"))
        self._answer(asker)

    def _answer(self, asker: ActorRef, error: Exception | None = None) -> None:
        self._answers.tell(asker, self._state or ChangeState(0), error)

    def _answer_taken(self) -> None:
        """Answer those whose version every changed fragment has taken up, or that has ended."""
        self._answers.tell_taken(self._state or ChangeState(0), self._is_being_taken)

    def _is_being_taken(self, number: int) -> bool:
        change = self._core.change
        if self._core.stage is Stage.PROPOSED:
            return True
        return (
            change is not None
            and change.number == number
            and bool(self._reports.behind(change.touched, self._number, is_trial=self._is_trial))
        )

    # ---- effects

    def _take(self, event: Event) -> None:
        effects, change = self._core.step(event), self._core.change
        if change is not None:
            number = change.before if self._core.stage is Stage.PROPOSED else change.number
            self._show(
                ChangeState(number, self._core.stage, change.number, change.before, self._core.awaited)
            )
        for effect in effects:
            self._perform(effect)

    def _show(self, state: ChangeState) -> None:
        self._state = state
        self._owner.changed()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case RecordVersion(change):
                assert self._compiled is not None
                record = functools.partial(self._record_version, self._compiled)
                self._in_thread(record, lambda _: self._recorded(change), self._not_recorded)
            case UseVersion():
                self._have_look()
            case RecordOutcome():
                record = functools.partial(self._record_outcome, effect)
                self._in_thread(record, lambda _: self._outcome_recorded(effect), self._later(effect))
            case TellEnd():
                self._tell_end(effect)

    def _record_version(self, compiled: Compiled) -> None:
        reached(CrashPoint.BEFORE_VERSION)
        self._stored.record(compiled)
        reached(CrashPoint.AFTER_VERSION)

    def _recorded(self, change: Change) -> None:
        self._number, self._is_trial = change.number, True
        if self._compiled is not None:
            progress = self._running.progress
            self._shown_before, progress.shown = progress.shown, self._compiled.shown
        waits = ", ".join(sorted(change.touched))
        self._notice(f"version {change.number} is in force, and on trial until a batch of {waits}")
        self._take(VersionRecorded())

    def _not_recorded(self, error: Exception) -> None:
        self._take(RecordingFailed(str(error)))

    def _record_outcome(self, effect: RecordOutcome) -> None:
        reached(CrashPoint.BEFORE_OUTCOME)
        self._stored.record_outcome(effect)
        reached(CrashPoint.AFTER_OUTCOME)

    def _outcome_recorded(self, effect: RecordOutcome) -> None:
        self._is_trial = False
        if self._core.stage is Stage.GOING_BACK:
            self._number = effect.change.before
            if self._shown_before is not None:
                self._running.progress.shown = self._shown_before
        self._take(OutcomeRecorded())

    def _later(self, effect: RecordOutcome) -> Callable[[Exception], None]:
        """Note that an outcome could not be recorded, and try again: the trial cannot end without it."""

        def failed(error: Exception) -> None:
            self._owner.note(error_view(error))
            again = Call(functools.partial(self._perform, effect))
            self._owner.context.timers.start_once("change outcome", again, delay_ms=_AGAIN_MS)

        return failed

    def _tell_end(self, ended: TellEnd) -> None:
        change = ended.change
        how = (ended.outcome, ended.fragment, ended.why)
        self._show(ChangeState(self._number, Stage.IDLE, change.number, change.before, (), *how))
        self._compiled = self._shown_before = None
        self._notice(show_end(ended))
        self._have_look()
        self._answer_taken()
        self._owner.report()
        self._settled()

    def _note(self, error: Exception) -> None:
        self._owner.note(error_view(error))

    def _notice(self, text: str) -> None:
        self._owner.note(ErrorView("notice", text))

    # ---- executors

    def _have_look(self) -> None:
        self._reports.have_look(self._number, is_trial=self._is_trial)

    # ---- threads

    def _in_thread(
        self, work: Callable[[], T], then: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        self._owner.context.pipe_to_self(
            self._owner.context.blocking(work),
            lambda result: Call(functools.partial(then, result)),
            lambda error: Call(functools.partial(failed, error)),
        )
