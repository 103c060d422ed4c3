"""The leader's application manager: handles requests of clients and application masters.

Design. `core.cluster.applications` decides what may happen. Each change is written to a majority before any
other process learns of it: messages that depend on it wait in a queue (`write_queue`). `app_masters` starts
application masters and notices that they are gone.

Invariants:
1. Those of `core.cluster.applications` and `app_masters`.
2. Nothing that depends on a change is sent before a majority has it, nor after the lease has run out.
3. Clients that wait when the term ends are answered `NotLeader`, so that they ask the next leader.

Called by `/user/master`, which forwards messages of clients, workers and application masters.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

from drivetrain.actor import ActorRef, Failure, Message, Terminated
from drivetrain.cluster.master.applications.app_masters import AppMasters
from drivetrain.cluster.master.leader_actor import LeaderActor
from drivetrain.cluster.master.master_messages import (
    EnsureCode,
    EnsureCodeReply,
    Leadership,
    PutDone,
    SubmissionCodeChecked,
    Tick,
    WorkerDown,
    WorkerReported,
    WorkerUp,
)
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.master.registry import application_records
from drivetrain.cluster.master.registry.write_queue import DurableQueue
from drivetrain.cluster.messages.applications import (
    APPLICATION_NAME,
    Accepted,
    Applications,
    ApplicationSummary,
    ApplicationView,
    FoundApplication,
    GetApplication,
    GetApplications,
    Kill,
    Restart,
    Submit,
)
from drivetrain.cluster.messages.launching import (
    Launched,
    LaunchFailed,
    ProcessExited,
)
from drivetrain.cluster.messages.registration import (
    AppMasterRegistered,
    AppMasterReport,
    RegisterAppMaster,
    ReportAccepted,
)
from drivetrain.cluster.messages.resources import CancelRequest, RequestSlots, SlotsAllocated, SlotsRefused
from drivetrain.core.cluster.application_record import ApplicationRecord, RefusedError
from drivetrain.core.cluster.applications import ApplicationRegistry, number_of
from drivetrain.core.cluster.record_limits import cut

log = logging.getLogger("drivetrain.cluster")

_PAGE: Final = 200
_LINE_BYTES: Final = 4_000
_LINE_CHARACTERS: Final = 400
_OF_CLIENTS: Final = (Submit, GetApplications, GetApplication, Kill, Restart)


class AppManager(LeaderActor):
    """The applications of the leader of `term`; `values` is the registry at the start of the term."""

    def __init__(
        self,
        settings: MasterSettings,
        term: int,
        leadership: Leadership,
        values: dict[str, bytes],
        wall_ms: Callable[[], int],
        scheduler: ActorRef,
        registry: ActorRef,
        code: ActorRef,
    ) -> None:
        self._settings: Final = settings
        self.leading_term = self._term = term
        self._leadership: Final = leadership
        self._wall_ms: Final = wall_ms
        self._scheduler: Final = scheduler
        self._writer: Final = registry
        self._code: Final = code
        self._registry = ApplicationRegistry(
            application_records.records_of(values),
            last_number=int(values.get(application_records.NUMBER, b"0")),
            max_deaths=settings.app_master_restarts,
            window_ms=settings.app_master_window_ms,
            limits=settings.limits,
        )

    def pre_start(self) -> None:
        """Take over all live applications from the registry."""
        self._queue = DurableQueue(self._writer, self.context.me, self._registry.records, self.mishaps)
        self._masters = AppMasters(
            self._settings,
            self._leadership,
            self.context,
            self._registry,
            self._queue,
            self._scheduler,
            self._wall_ms,
        )
        self._masters.take_over()
        beat_ms = max(1, min(500, self._settings.lease_ms // 4))
        self.context.timers.start_periodic("tick", Tick(), interval_ms=beat_ms, initial_delay_ms=0)

    def leave(self) -> None:
        """Answer waiting clients that they must find the next leader."""
        self._queue.leave(self._term)

    def asker_of(self, message: Message) -> ActorRef | None:
        """The asker; for `SubmissionCodeChecked`, the client that submitted the application."""
        return message.sender if isinstance(message, SubmissionCodeChecked) else super().asker_of(message)

    def recovered(self) -> None:
        """Write the changes that a handler left unwritten, and start what it left unstarted."""
        for record in list(self._registry.records.values()):
            if self._queue.kept.get(record.app_id) is not record:
                self._keep(record)
        self._masters.take_over()

    def act(self, message: Message) -> None:
        """Handle one message; ignores all once the lease has run out."""
        if not self._leadership.leads(self._term):
            return
        try:
            self._handle(message)
        except RefusedError as refused:
            sender, answer = self.context.sender, _failure(refused)
            if isinstance(message, _OF_CLIENTS):
                self._queue.answer(sender, answer)
            elif sender is not None:
                self._queue.then(lambda: sender.tell(answer))

    def _handle(self, message: Message) -> None:  # noqa: C901 - a table of messages
        match message:
            case PutDone(number):
                self._queue.put_done(number)
            case Submit():
                self._submit(message)
            case SubmissionCodeChecked():
                self._code_checked(message)
            case GetApplications(before):
                self._list(before)
            case GetApplication(app):
                self._reply_view(self._registry.find(app).app_id)
            case Kill(app):
                self._kill(app)
            case Restart(app, replay_from_ms, epoch):
                self._restart(app, replay_from_ms, epoch)
            case RequestSlots() | CancelRequest():
                self._forward_request(message)
            case SlotsAllocated():
                self._masters.allocated(message)
            case SlotsRefused():
                self._masters.not_allocated(message)
            case Launched() | LaunchFailed() | ProcessExited():
                self._masters.launch_answered(message)
            case RegisterAppMaster():
                self._register(message)
            case AppMasterReport():
                self._report(message)
            case Terminated():
                self._masters.terminated(message)
            case WorkerUp():
                self._masters.worker_up(message)
            case WorkerReported():
                self._masters.worker_holds(message)
            case WorkerDown():
                self._masters.worker_down(message)
            case Tick():
                self._masters.tick()
                self._forget_surplus()
            case _:
                self.context.unhandled(message)

    # ---- clients

    def _submit(self, message: Submit) -> None:
        if re.fullmatch(APPLICATION_NAME, message.spec.name) is None:
            raise RefusedError(
                f"{message.spec.name[:120]!r} cannot be the name of an application",
                reason="bad-name",
                remedy="use letters, digits, '_' and '-', beginning with a letter or '_', 100 at most",
            )
        sender, spec = self.context.sender, message.spec
        self.context.pipe_to_self(
            self._code.ask(
                EnsureCode(spec.code), EnsureCodeReply, timeout_ms=self._settings.quorum_timeout_ms
            ),
            lambda answer: SubmissionCodeChecked(message, sender, answer.is_there),
            lambda _: SubmissionCodeChecked(message, sender, False),
        )

    def _code_checked(self, message: SubmissionCodeChecked) -> None:
        submit, sender = message.submit, message.sender
        answer: Message
        try:
            _require_code(message)
            spec = submit.spec
            record, is_new = self._registry.submit(
                submit.submission_id,
                spec.name,
                application_records.encode_spec(spec),
                spec.code,
                self._wall_ms(),
            )
        except RefusedError as refused:
            answer = _failure(refused)
        else:
            answer = Accepted(record.app_id)
            if is_new:
                log.info("%s was submitted", record.app_id)
                self._keep(record)
                self._masters.start(record.app_id)
        self._queue.answer(sender, answer)

    def _list(self, before: int | None) -> None:
        # The current list, sent only once all of it is durable.
        found = self._registry.newest_first(before)
        page = found[: max(1, min(_PAGE, self._settings.chunk_bytes // _LINE_BYTES))]
        following = number_of(page[-1].app_id) if len(page) < len(found) else None
        lines = tuple(self._line_of(record) for record in page)
        self._queue.answer(self.context.sender, Applications(lines, following))

    def _keep(self, record: ApplicationRecord) -> None:
        number = str(self._registry.last_number).encode()
        self._queue.keep(record, {application_records.NUMBER: number})

    def _kill(self, app: str) -> None:
        record = self._registry.kill(app, self._wall_ms())
        self._queue.keep(record)
        self._reply_view(record.app_id)
        self._masters.end(record, record.epoch, record.launch_id, record.worker_id, "it was killed")

    def _restart(self, app: str, replay_from_ms: int | None, epoch: int | None) -> None:
        before = self._registry.find(app)
        if epoch is not None and (before.epoch != epoch or before.state.is_over):
            self._reply_view(before.app_id)  # a repeated request, whose answer was lost
            return
        if replay_from_ms is not None and application_records.spec_of(before).app_master is not None:
            raise RefusedError(
                f"{before.app_id} has an application master of its own, and no event time",
                reason="cannot-replay",
                remedy="restart it, or submit it again with --fresh",
            )
        spec = application_records.spec_replayed(before, replay_from_ms)
        record = self._registry.restart(before.app_id, spec=spec)
        self._queue.keep(record)
        self._reply_view(record.app_id)
        if not before.state.is_over:
            self._masters.end(
                record, before.epoch, before.launch_id, before.worker_id, "it is being restarted"
            )
        self._masters.start(record.app_id, last_worker=before.worker)

    # ---- application masters

    def _register(self, message: RegisterAppMaster) -> None:
        record = self._masters.accept(message)
        answer = AppMasterRegistered(
            record.app_id,
            record.epoch,
            application_records.spec_of(record),
            record.clock_ms,
            record.graph_version,
            record.restarts,
        )
        self._answer_app_master(answer)

    def _report(self, message: AppMasterReport) -> None:
        before = self._registry.records.get(message.app_id)
        record = self._registry.report(
            message.app_id,
            message.epoch,
            message.state,
            self._wall_ms(),
            clock_ms=message.clock_ms,
            graph_version=message.graph_version,
            why=message.why,
            result=message.result,
            restarts=message.restarts,
            spec=None if before is None else application_records.spec_after(before, message),
            replayed_from_ms=None if before is None else application_records.replay_begun(before, message),
        )
        if record != before:
            self._queue.keep(record)
        self._answer_app_master(ReportAccepted())
        if record.state.is_over:
            log.info("%s is over: %s", record.app_id, record.state.value)
            self._masters.over(record.app_id)

    def _answer_app_master(self, answer: Message) -> None:
        sender = self.context.sender
        if sender is not None:
            self._queue.then(lambda: sender.tell(answer))

    def _forward_request(self, message: RequestSlots | CancelRequest) -> None:
        if isinstance(message, RequestSlots):
            record = self._registry.records.get(message.app_id)
            if record is None or record.epoch != message.epoch or record.state.is_over:
                why = f"epoch {message.epoch} of {message.app_id} is not current"
                message.requester.tell(SlotsRefused(message.request_id, "stale-epoch", why))
                return
        self.context.forward(self._scheduler)

    def _forget_surplus(self) -> None:
        gone = self._registry.surplus(self._settings.kept_applications)
        if gone:
            self._queue.forget(gone)

    # ---- views

    def _reply_view(self, app_id: str) -> None:
        view = self._view(self._registry.records[app_id])
        self._queue.answer(self.context.sender, FoundApplication(view))

    def _why(self, record: ApplicationRecord) -> str | None:
        waits_for = self._masters.run_of(record.app_id).waits_for
        return record.why if waits_for is None or record.launch_id is not None else waits_for

    def _line_of(self, record: ApplicationRecord) -> ApplicationSummary:
        spec = application_records.spec_of(record)
        return ApplicationSummary(
            record.app_id,
            record.name,
            record.state,
            record.epoch,
            record.submitted_ms,
            record.ended_ms,
            cut(record.worker, _LINE_CHARACTERS),
            cut(self._why(record), _LINE_CHARACTERS),
            record.clock_ms,
            record.graph_version,
            spec.priority,
            cut(spec.file, _LINE_CHARACTERS) or "",
            spec.code,
        )

    def _view(self, record: ApplicationRecord) -> ApplicationView:
        run = self._masters.run_of(record.app_id)
        return ApplicationView(
            record.app_id,
            application_records.spec_of(record),
            record.state,
            record.epoch,
            record.submitted_ms,
            record.ended_ms,
            run.app_master,
            record.worker,
            self._why(record),
            record.clock_ms,
            record.graph_version,
            record.result,
        )


def _failure(refused: RefusedError) -> Failure:
    return Failure(refused.reason, refused.what, remedy=refused.remedy)


def _require_code(message: SubmissionCodeChecked) -> None:
    if not message.is_there:
        raise RefusedError(
            "the masters do not have the application's files", reason="no-code", remedy="submit it again"
        )
