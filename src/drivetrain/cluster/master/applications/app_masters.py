"""The application masters of the leader's applications: starts, watches, ends and replaces them.

Problem. An application must continue whatever process dies, and never have two application masters that both
count.

Design. An application master is started in steps: slots from the scheduler; a new epoch with its worker,
written to a majority; then the launch, sent to the worker until it answers. An application master counts as
dead when DeathWatch, its worker's report, `ProcessExited` or the loss of the worker shows it, or when it does
not register in time; then the next epoch starts elsewhere. A new leader waits for the application masters in
the registry to register.

Invariants:
1. Those of `core.cluster.applications`.
2. A launch is sent only when a majority has its epoch.
3. Per application and epoch at most one application master is accepted.

Called by `application_manager`, which passes on the messages of workers and application masters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from drivetrain.actor import ActorRef, Context, Terminated
from drivetrain.cluster.master.master_messages import (
    Leadership,
    ReleaseApplication,
    WorkerDown,
    WorkerReported,
    WorkerUp,
)
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.master.registry import application_records
from drivetrain.cluster.master.registry.write_queue import DurableQueue
from drivetrain.cluster.messages.following import StopApplication
from drivetrain.cluster.messages.launching import (
    EndEpoch,
    Launch,
    Launched,
    LaunchFailed,
    ProcessExited,
    ProcessKind,
    StopProcess,
)
from drivetrain.cluster.messages.registration import RegisterAppMaster
from drivetrain.cluster.messages.resources import CancelRequest, RequestSlots, SlotsAllocated, SlotsRefused
from drivetrain.cluster.one_worker import WHY, policy_of, slots_of
from drivetrain.core.cluster.application_record import ApplicationRecord, ApplicationState, RefusedError
from drivetrain.core.cluster.applications import ApplicationRegistry
from drivetrain.core.cluster.slots import request_of

log = logging.getLogger("drivetrain.cluster")

_WAIT_FOR_SLOTS_MS: Final = 120_000
_FIRST_RETRY_MS: Final = 200
_LAST_RETRY_MS: Final = 10_000
_END_GRACE_MS: Final = 30_000
_RESEND_MS: Final = 1_000
_LOG_TAIL: Final = 500


@dataclass(slots=True)
class AppMasterState:
    """This leader's knowledge of an application's master, beyond the record."""

    app_master: ActorRef | None = None
    launch: Launch | None = None  # sent to its worker, not confirmed yet
    launch_at_ms: int = 0
    was_held: bool = False  # its worker has reported that it holds the launch
    due_ms: int | None = None  # when it counts as dead unless it has registered
    start_at_ms: int | None = None  # when to request slots for the next epoch
    waits_for: str | None = None
    last_worker: str | None = None  # where the one before ran, and may have left a state


class AppMasters:
    """Keeps one application master per live application of `registry`, in the actor whose context is given.

    Changes go into `queue` before any other process learns of them. `wall_ms` reads the wall clock.
    """

    def __init__(
        self,
        settings: MasterSettings,
        leadership: Leadership,
        context: Context,
        registry: ApplicationRegistry,
        queue: DurableQueue,
        scheduler: ActorRef,
        wall_ms: Callable[[], int],
    ) -> None:
        self._settings: Final = settings
        self._leadership: Final = leadership
        self._context: Final = context
        self._registry: Final = registry
        self._queue: Final = queue
        self._scheduler: Final = scheduler
        self._wall_ms: Final = wall_ms
        self._runs: dict[str, AppMasterState] = {}
        self._workers: dict[str, WorkerUp] = {}
        self._leaving: set[str] = set()  # workers that were asked to end
        self._over_since_ms: dict[str, dict[str, int]] = {}  # by worker and allocation

    def take_over(self) -> None:
        """Give every live application without a `AppMasterState` one: wait for its application master, or
        start it."""
        now_ms = self._leadership.now_ms()
        for record in self._registry.records.values():
            if record.state.is_over or record.app_id in self._runs:
                continue
            if record.launch_id is None:
                self.start(record.app_id)
            else:
                self._runs[record.app_id] = AppMasterState(
                    due_ms=now_ms + self._settings.app_master_timeout_ms
                )

    def run_of(self, app_id: str) -> AppMasterState:
        """The current knowledge of an application's master."""
        return self._runs.get(app_id) or AppMasterState()

    def start(self, app_id: str, delay_ms: int = 0, last_worker: str | None = None) -> None:
        """Start the next epoch's application master, after a delay; the one before ran on `last_worker`."""
        start_at_ms = self._leadership.now_ms() + delay_ms
        self._runs[app_id] = AppMasterState(start_at_ms=start_at_ms, last_worker=last_worker)

    def accept(self, message: RegisterAppMaster) -> ApplicationRecord:
        """Register an application master; returns the application's record. Raises `RefusedError`."""
        app_id, app_master = message.app_id, message.app_master
        run = self._runs.get(app_id)
        if run is None or run.app_master not in (None, app_master):
            raise RefusedError(f"epoch {message.epoch} of {app_id} must not run", reason="stale-epoch")
        before = self._registry.records.get(app_id)
        record = self._registry.register(app_id, message.epoch)
        if run.app_master is None:
            run.app_master = app_master
            self._context.watch(app_master)
            log.info("the application master of %s, epoch %d, has registered", app_id, record.epoch)
        run.due_ms = run.launch = None
        if record != before:
            self._queue.keep(record)
        return record

    def over(self, app_id: str) -> None:
        """An application has reported its end: its application master ends on its own."""
        run = self._runs.pop(app_id, None)
        if run is not None and run.app_master is not None:
            self._context.unwatch(run.app_master)
        self._scheduler.tell(ReleaseApplication(app_id))

    def end(
        self, record: ApplicationRecord, epoch: int, launch_id: str | None, worker_id: str | None, why: str
    ) -> None:
        """Stop the processes of an epoch, once the registry has the change."""
        run = self._runs.pop(record.app_id, AppMasterState())
        app_master = run.app_master

        def stop() -> None:
            if app_master is not None:
                app_master.tell(StopApplication(epoch, why))
            self._stop_process(worker_id, launch_id)
            self._scheduler.tell(ReleaseApplication(record.app_id, below_epoch=record.epoch + 1))

        if app_master is not None:
            self._context.unwatch(app_master)
        self._queue.then(stop)

    # ---- starting application masters

    def _ask_for_slots(self, record: ApplicationRecord, last_worker: str | None) -> None:
        spec = application_records.spec_of(record)
        together = slots_of(spec)
        hosts = (last_worker,) if together and last_worker is not None else ()
        policy = "locality" if hosts else policy_of(spec) if together else "spread"
        self._scheduler.tell(
            RequestSlots(
                f"{record.app_id}.{record.epoch + 1}",
                record.app_id,
                record.epoch + 1,
                self._settings.app_master_slots + together,
                self._context.me,
                spec.priority,
                policy,
                hosts,
                timeout_ms=_WAIT_FOR_SLOTS_MS,
            )
        )

    def allocated(self, message: SlotsAllocated) -> None:
        """Slots were allocated for an application master: launch it, in the next epoch."""
        app_id, _, epoch = message.request_id.rpartition(".")
        record = self._registry.records.get(app_id)
        if (
            record is None
            or record.state is not ApplicationState.PENDING
            or record.launch_id is not None
            or record.epoch + 1 != int(epoch)
        ):
            self._scheduler.tell(CancelRequest(message.request_id, app_id))
            return
        record = self._registry.launch(app_id, message.allocation_id, message.worker_id, message.worker_name)
        run = self._runs[app_id] = AppMasterState(
            due_ms=self._leadership.now_ms() + self._settings.app_master_timeout_ms
        )
        launch = Launch(
            message.allocation_id,
            ProcessKind.APP_MASTER,
            app_id,
            record.epoch,
            application_records.spec_of(record),
            message.slots,
            self._context.parent,
            submission=record.submission_id,
        )

        def tell() -> None:
            if self._runs.get(app_id) is run:
                run.launch = launch
                run.launch_at_ms = self._leadership.now_ms()
                message.worker.tell(launch, self._context.parent)

        self._queue.keep(record)
        self._queue.then(tell)

    def not_allocated(self, message: SlotsRefused) -> None:
        """Slots for an application master were refused: try again soon."""
        app_id = message.request_id.rpartition(".")[0]
        run = self._runs.get(app_id)
        if run is not None:
            spec = application_records.spec_of(self._registry.records[app_id])
            why = f"{message.why} ({WHY})" if slots_of(spec) else message.why
            run.waits_for = f"waits for slots for its application master: {why}"
            run.start_at_ms = self._leadership.now_ms() + _FIRST_RETRY_MS

    def launch_answered(self, message: Launched | LaunchFailed | ProcessExited) -> None:
        """Handle a worker's report on a launch."""
        app_id = request_of(message.launch_id).rpartition(".")[0]
        record, run = self._registry.records.get(app_id), self._runs.get(app_id)
        if record is None or run is None or record.launch_id != message.launch_id or record.state.is_over:
            return
        match message:
            case Launched():
                run.launch = None
                run.was_held = True
            case LaunchFailed(_, _, why, _):
                self._died(app_id, f"its application master could not be started: {why}")
            case ProcessExited(_, _, _, status, tail):
                self._died(app_id, f"its application master ended with status {status}: {tail[-_LOG_TAIL:]}")

    def _died(self, app_id: str, why: str) -> None:
        record = self._registry.records[app_id]
        if record.state.is_over or record.launch_id is None:
            return
        old = self._runs.pop(app_id, AppMasterState())
        if old.app_master is not None:
            self._context.unwatch(old.app_master)
        was_moved = record.worker_id in self._leaving
        after = self._registry.die(app_id, record.epoch, why, self._wall_ms(), counts=not was_moved)
        log.warning("%s, epoch %d: %s", app_id, record.epoch, why)
        self._queue.keep(after)
        # It may still live, cut off from here: stop it through every process that reaches it.
        self.end(after, record.epoch, record.launch_id, record.worker_id, why)
        self._queue.then(partial(self._end_epoch, app_id, record.epoch))
        if not after.state.is_over:
            failures = len(after.deaths_ms)
            delay_ms = 0 if was_moved or failures < 2 else min(_FIRST_RETRY_MS * 2**failures, _LAST_RETRY_MS)
            self.start(app_id, delay_ms, record.worker)

    # ---- workers

    def terminated(self, message: Terminated) -> None:
        """Handle a DeathWatch notice that an actor is gone."""
        for app_id, run in list(self._runs.items()):
            if run.app_master == message.actor:
                self._died(app_id, f"its application master is gone ({message.cause.value})")

    def worker_up(self, message: WorkerUp) -> None:
        """A worker has registered, perhaps again."""
        is_new = message.worker_id not in self._workers
        self._workers[message.worker_id] = message
        self._compare_holdings(message, is_new=is_new)

    def worker_holds(self, message: WorkerReported) -> None:
        """A worker reports what it holds."""
        self._compare_holdings(message, is_new=False)

    def _compare_holdings(self, message: WorkerUp | WorkerReported, *, is_new: bool) -> None:
        """Compare a worker's launches with the registry: stop surplus ones, replace missing ones."""
        worker_id, held = message.worker_id, message.held
        if message.leaves:
            self._leaving.add(worker_id)
        here = {each.allocation_id for each in held}
        over_since = self._over_since_ms.pop(worker_id, {})
        over_since = {each: since_ms for each, since_ms in over_since.items() if each in here}
        for each in held:
            if each.kind != ProcessKind.APP_MASTER.value:
                continue
            record = self._registry.records.get(each.app_id)
            if record is not None and record.launch_id == each.allocation_id:
                run = self._runs.get(each.app_id)
                if not record.state.is_over and run is not None:
                    run.was_held = True
                    run.launch = None
                    continue
                since_ms = over_since.setdefault(each.allocation_id, self._leadership.now_ms())
                if (
                    record.state is not ApplicationState.KILLED
                    and self._leadership.now_ms() < since_ms + _END_GRACE_MS
                ):
                    continue  # give it time to end on its own
            self._stop_process(worker_id, each.allocation_id)
        if over_since:
            self._over_since_ms[worker_id] = over_since
        for record in list(self._registry.records.values()):
            run = self._runs.get(record.app_id)
            if (
                record.worker_id != worker_id
                or record.state.is_over
                or run is None
                or record.launch_id in here
            ):
                continue
            # A launch of this leader that is not confirmed may still be under way.
            if run.was_held or (is_new and run.launch is None and run.app_master is None):
                self._died(record.app_id, "its worker no longer runs its application master")

    def worker_down(self, message: WorkerDown) -> None:
        """A worker is gone, and its application masters with it."""
        self._workers.pop(message.worker_id, None)
        self._over_since_ms.pop(message.worker_id, None)
        for record in list(self._registry.records.values()):
            if record.worker_id == message.worker_id and not record.state.is_over:
                self._died(record.app_id, message.why)
        self._leaving.discard(message.worker_id)

    def _end_epoch(self, app_id: str, epoch: int) -> None:
        """End the executors of a dead application master: their successors wait for their locks."""
        for worker in self._workers.values():
            worker.worker.tell(EndEpoch(app_id, epoch), self._context.parent)

    def _stop_process(self, worker_id: str | None, launch_id: str | None) -> None:
        worker = self._workers.get(worker_id or "")
        if worker is not None and launch_id is not None:
            worker.worker.tell(StopProcess(launch_id), self._context.parent)

    # ---- time

    def tick(self) -> None:
        """Time has passed: request slots, repeat launches, replace those that did not register in time."""
        now_ms = self._leadership.now_ms()
        for app_id, run in list(self._runs.items()):
            record = self._registry.records[app_id]
            if run.start_at_ms is not None and now_ms >= run.start_at_ms:
                # Repeated without an answer: requests with the same id count once.
                run.start_at_ms = now_ms + _WAIT_FOR_SLOTS_MS // 2
                self._ask_for_slots(record, run.last_worker)
            if run.launch is not None and now_ms >= run.launch_at_ms + _RESEND_MS:
                run.launch_at_ms = now_ms
                worker = self._workers.get(record.worker_id or "")
                if worker is not None:
                    worker.worker.tell(run.launch, self._context.parent)
            if run.due_ms is not None and now_ms >= run.due_ms:
                self._died(app_id, "its application master has not registered in time")
