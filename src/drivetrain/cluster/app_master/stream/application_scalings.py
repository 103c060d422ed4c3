"""Scalings of an application that runs in a cluster, as its application master sees them.

Problem: a client asks for another number of state partitions of a fragment; the fragment runs in an executor,
and the client, the executor and this process may each die in the middle.

Design: the executor of the fragment checks the request. Then one file records that the scaling is wanted
(`runtime.wanted_scaling`), before the client is answered. Whichever attempt of the fragment runs does the
scaling, and reports its stage together with the versions that it has seen; this process asks until the
current attempt has reported. When an attempt reports that the scaling has ended, or the fragment has ended,
the outcome is recorded, and the file is removed. Stages and invariants: see `core.change.scaling_state`.

What if we die here: before the file is written nothing has begun, and the client gets no answer; the next
application master continues with the file.

Invariants:

1. One scaling is under way at a time, and none beside a change of the graph; what comes second is refused.
2. Only reports of the fragment's current attempt count.

Called by `application_changes`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.actor import AskError
from drivetrain.cluster.app_master.app_master_messages import RunAction
from drivetrain.cluster.app_master.blocking_work import in_thread, noted_and_repeated
from drivetrain.cluster.app_master.stream.change_answers import ChangeAnswers
from drivetrain.cluster.app_master.stream.change_compiler import RefusedChangeError
from drivetrain.cluster.messages.changing import (
    CheckScaling,
    ScaleFragment,
    ScalingChecked,
    VersionReport,
)
from drivetrain.cluster.messages.executing import PrepareFailed
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.errors import UnavailableError
from drivetrain.runtime.error_views import error_view

if TYPE_CHECKING:
    from drivetrain.actor import ActorRef
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.cluster.app_master.stream.running_job import RunningJob
    from drivetrain.cluster.app_master.stream.stored_scalings import StoredScalings
    from drivetrain.core.change.change_state import ChangeState
    from drivetrain.core.change.scaling_state import PlannedScaling, ScalingState

_AGAIN_MS: Final = 2_000
"""How soon recording an outcome is tried again after a failure."""
_CHECKS_MS: Final = 30_000
_TIMER: Final = "scaling outcome"


class ApplicationScalings:
    """The scalings of the application of `owner`, whose job is `running` and whose files `stored` has.

    `refusal` is why nothing can begin now; `shown` is the state of changes for answers; `settled` is called
    when a scaling has ended, or does not begin.
    """

    def __init__(
        self,
        owner: ApplicationMaster,
        running: RunningJob,
        stored: StoredScalings,
        refusal: Callable[[], Exception | None],
        shown: Callable[[], ChangeState],
        settled: Callable[[], None],
    ) -> None:
        self._owner: Final = owner
        self._running: Final = running
        self._stored: Final = stored
        self._refusal: Final = refusal
        self._shown: Final = shown
        self._settled: Final = settled
        self.state: ScalingState | None = None
        """The scaling that is under way, or was the last."""
        self.is_asked = False
        """Whether one is being checked, or written."""
        self._is_ending = False
        self._reported_by = -1  # the attempt that has reported

    @property
    def is_under_way(self) -> bool:
        """Whether a fragment is being scaled, or is about to be."""
        return self.is_asked or (self.state is not None and not self.state.is_over)

    # ---- events

    def resume(self, state: ScalingState | None) -> None:
        """The state directory has been read: `state` is the wanted scaling, or the last one that was done."""
        if self.state is None:
            self.state = state

    def seen(self, seen: VersionReport) -> None:
        """The report of a fragment's current attempt."""
        state, reported = self.state, seen.scaling
        if state is None or state.is_over or reported is None or reported.id != state.id:
            return
        self._reported_by = seen.attempt
        if reported.is_over:
            self._end(reported)
        elif reported != state:
            self.state = reported
            self._owner.changed()

    def beat(self) -> None:
        """Have the current attempt look if it has not reported; end a scaling that no attempt can do."""
        state = self.state
        if state is None or state.is_over or self._is_ending:
            return
        execution = self._running.job.execution(state.fragment)
        if execution is None or execution.state is ExecutionState.FINISHED:
            self._end(msgspec.structs.replace(state, why="the fragment has ended"))
        elif execution.attempt != self._reported_by:
            self._running.have_look([state.fragment])

    # ---- requests

    def asked(self, message: ScaleFragment, asker: ActorRef) -> None:
        """A client asks for a scaling, or what it would do."""
        error = None if message.only_plans else self._refusal()
        if error is not None:
            self._answer(asker, error)
            return
        self.is_asked = self.is_asked or not message.only_plans
        self._owner.context.pipe_to_self(
            self._checked(message),
            lambda state: RunAction(partial(self._found, message, asker, state)),
            lambda error: RunAction(partial(self._refused, message, asker, error)),
        )

    async def _checked(self, message: ScaleFragment) -> ScalingState:
        """The scaling as it begins, according to the executor that runs the fragment; raises the refusal."""
        fragment = await self._owner.context.blocking(self._stored.fragment_of, message.fragment)
        execution, answer = self._running.job.execution(fragment), None
        if execution is not None and execution.state is ExecutionState.FINISHED:
            raise UnavailableError(
                "the fragment has finished", where=f"fragment {fragment}", remedy="nothing is left to scale"
            )
        member = None
        if execution is not None and execution.state is ExecutionState.RUNNING and execution.executor:
            member = self._owner.pool.find(execution.executor)
        if member is not None and member.executor is not None:
            request = CheckScaling(self._owner.setup.epoch, fragment, message.partitions)
            try:
                answer = await member.executor.ask(request, timeout_ms=_CHECKS_MS)
            except AskError as error:
                raise _not_running(fragment, str(error)) from error
        if isinstance(answer, PrepareFailed):
            raise RefusedChangeError(answer.error)
        if not isinstance(answer, ScalingChecked):
            raise _not_running(fragment, "it is starting")
        return answer.state

    def _found(self, message: ScaleFragment, asker: ActorRef, state: ScalingState) -> None:
        if message.only_plans:
            planned = partial(self._stored.planned, state)
            refused = partial(self._refused, message, asker)
            in_thread(self._owner, planned, partial(self._planned, asker), refused)
            return
        self.is_asked = False
        error = self._refusal()
        if error is not None:
            self._refused(message, asker, error)
            return
        self.is_asked = True
        id = f"{self._owner.context.system.rng.getrandbits(128):032x}"
        wanted = msgspec.structs.replace(state, id=id)
        begun = partial(self._begun, wanted, asker)
        in_thread(
            self._owner,
            partial(self._stored.begin, wanted),
            begun,
            partial(self._refused, message, asker),
        )

    def _begun(self, wanted: ScalingState, asker: ActorRef, _: None) -> None:
        self.is_asked, self.state, self._reported_by = False, wanted, -1
        self._notice(wanted)
        self._answer(asker)
        self.beat()

    def _planned(self, asker: ActorRef, planned: PlannedScaling) -> None:
        ChangeAnswers().tell(asker, self._shown(), planned=planned)

    def _refused(self, message: ScaleFragment, asker: ActorRef, error: Exception) -> None:
        if not message.only_plans:
            self.is_asked = False
        self._answer(asker, error)
        self._settled()  # all fragments may have finished meanwhile

    def _answer(self, asker: ActorRef, error: Exception | None = None) -> None:
        ChangeAnswers().tell(asker, self._shown(), error)

    # ---- the end

    def _end(self, state: ScalingState) -> None:
        """The attempt has ended it, or there is none: record the outcome, sooner or later."""
        if not self._is_ending:
            self._is_ending = True
            self._record(state if state.is_over else state.ended(why=state.why))

    def _record(self, state: ScalingState) -> None:
        again = noted_and_repeated(self._owner, _TIMER, partial(self._record, state), _AGAIN_MS)
        in_thread(self._owner, partial(self._stored.end, state), self._recorded, again)

    def _recorded(self, ended: tuple[ScalingState, Exception | None]) -> None:
        state, unlisted = ended
        self.state, self._is_ending = state, False
        self._notice(state)
        if unlisted is not None:
            self._owner.note(error_view(unlisted))
        self._running.have_look([state.fragment])
        self._settled()

    def _notice(self, state: ScalingState) -> None:
        self._owner.note(ErrorView("notice", state.in_words))


def _not_running(fragment: str, why: str) -> UnavailableError:
    return UnavailableError(
        "the fragment that is to be scaled does not run now",
        where=f"fragment {fragment}",
        got=why,
        remedy="try again in a moment",
    )
