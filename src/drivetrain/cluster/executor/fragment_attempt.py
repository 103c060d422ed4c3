"""One attempt of one fragment, step by step.

Steps of an attempt: wait for the fragment's lock, compile, start the query, poll it until it has finished,
has failed or is cancelled; stop the query, and only then release the lock. When a query ends because messages
of a channel were lost, they are repaired and another query follows, in the same attempt; the same happens
when the application goes back from a version that has failed here. Each outcome is passed to `tell`, as
`AttemptChanged`.

`step` returns when the attempt has to wait, for its predecessor, the lock, a batch or an order of its
executor. In production `attempt_thread` calls it, in a simulation the test.

Invariants:
1. `RUNNING` is sent at most once and first; then exactly one of `FINISHED`, `CANCELED`, `FAILED`, last.
   A finished attempt takes part in checkpoints until it is retired, and may still send `FAILED`.
2. When the last outcome is sent, the query is stopped and the lock is free, unless `lost` is set because
   Spark has ended, or its locks are lost: then the process must end.

Called by `executor` and `attempt_thread`.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections.abc import Callable

from drivetrain.actor import Message
from drivetrain.cluster.executor.attempt_progress import progress_of
from drivetrain.cluster.executor.attempt_versions import AttemptVersions
from drivetrain.cluster.executor.failure_views import error_of, is_retryable, java_is_lost
from drivetrain.cluster.executor.leaving_attempt import LeavingAttempt
from drivetrain.cluster.executor.running_versions import RunningVersions
from drivetrain.cluster.executor.spark_work import PREDECESSOR_S, SparkWork
from drivetrain.cluster.messages.changing import VersionReport
from drivetrain.cluster.messages.executing import FragmentOutcome, FragmentProgress
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.cluster.messages.numbers import LARGEST
from drivetrain.core.job.run_progress import FragmentState
from drivetrain.errors import DrivetrainError, InputError, UnavailableError
from drivetrain.runtime.error_views import error_view
from drivetrain.runtime.fragment_lock import FragmentLock
from drivetrain.runtime.fragment_roles import Role
from drivetrain.runtime.lock_marks import LostLockError
from drivetrain.runtime.state.divided_state import DividedState
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.checkpoints.participation import RestoreNeededError
from drivetrain.spark.checkpoints.restoring import is_lost, mark_damaged
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.run.execution import Execution
from drivetrain.spark.run.fragment_driver import DRAIN_S, FragmentDriver
from drivetrain.spark.run.outside_repairs import OutsideRepairs
from drivetrain.spark.run.recovery import Recovery
from drivetrain.spark.session import lost_java

log = logging.getLogger(__name__)

_PROGRESS_S = 0.5
"""How old progress may be, as reading a channel's lag takes some system calls."""


class AttemptChanged(Message, frozen=True, tag="dt.local.executor-attempt-changed"):
    """An attempt has a new outcome; sent to its executor."""

    fragment: str
    attempt: int
    outcome: FragmentOutcome
    error: ErrorView | None = None
    retryable: bool = True
    lost: bool = False


class Attempt:
    """Runs `fragment` once; the application master chose `number` for this attempt."""

    def __init__(
        self,
        fragment: str,
        number: int,
        work: SparkWork,
        tell: Callable[[AttemptChanged], None],
        before: Attempt | None = None,
    ) -> None:
        self.fragment = fragment
        self.number = number
        self.is_over = False
        """Set by the executor when it has received the last outcome."""
        self.seen: VersionReport | None = None
        """The version that it has seen, and what it has done with it; None: nothing yet."""
        self.disk: tuple[int, int] | None = None
        """Free and total bytes of the file system with the state directory; None: not known yet."""
        self._work = work
        self._tell = tell
        self._before = before
        self.has_ended = False
        """Whether there is no further step."""
        self._cancelled = threading.Event()
        self._retired = threading.Event()
        self._has_orders = threading.Event()
        self._drained = True
        self._is_running = False
        self._driver: FragmentDriver | None = None
        self._versions: AttemptVersions | None = None
        self._leaving: LeavingAttempt | None = None
        self._repairs: OutsideRepairs | None = None
        self._may_leave = self._has_left = False
        self._progress: FragmentProgress | None = None
        self._progress_s = 0.0
        self._now_s = 0.0
        self._steps = self._run()

    def cancel(self, *, drain: bool) -> None:
        """End at the next batch boundary (`drain`) or now; may be repeated, from any thread."""
        self._drained = drain and (self._drained or not self._cancelled.is_set())
        self._cancelled.set()
        self._has_orders.set()

    def retire(self) -> None:
        """Leave checkpoints, after the attempt has finished; returns at once. From any thread."""
        self._retired.set()
        self._has_orders.set()

    def permit_leave(self) -> None:
        """No producer writes any more to the fragment, which leaves. Called from any thread."""
        self._may_leave = True
        self._has_orders.set()

    def wait_orders(self, wait_s: float) -> None:
        """Wait until it is cancelled or retired, at most `wait_s`; for the caller of `step`."""
        self._has_orders.wait(wait_s)
        self._has_orders.clear()

    def step(self, now_s: float) -> None:
        """Do what can be done without waiting; to be repeated until `has_ended`. `now_s` is monotonic."""
        self._now_s = now_s
        is_waiting = False
        try:
            next(self._steps)
            is_waiting = True
        except StopIteration:
            return
        finally:
            self.has_ended = not is_waiting

    @property
    def progress(self) -> FragmentProgress | None:
        """The attempt's progress; None before it runs. From any thread."""
        return self._progress

    @property
    def driver(self) -> FragmentDriver | None:
        """The driver of the fragment; None before it is compiled. Called from any thread."""
        return self._driver

    def accumulators(self) -> dict[str, int | float]:
        """The user's counters since the attempt began. From any thread."""
        return {} if self._driver is None else self._driver.query.counts.user.values()

    # -- its steps -------------------------------------------------------------------------------------

    def _run(self) -> Steps[None]:
        outcome, error, lost = FragmentOutcome.FAILED, None, False
        try:
            outcome = yield from self._until_over()
        except BaseException as raised:  # noqa: BLE001 - the application master gets every error
            if self._cancelled.is_set():
                outcome = FragmentOutcome.CANCELED
            else:
                error = error_of(raised, f"fragment {self.fragment}")
        if outcome is FragmentOutcome.FAILED and lost_java.is_lost():
            error, lost = java_is_lost(error), True
        elif isinstance(error, LostLockError):
            lost = True  # a new executor takes the locks, if the application still wants one
        self._announce(outcome, error, lost)
        if outcome is FragmentOutcome.FINISHED and self._driver is not None and not self._has_left:
            yield from self._serve_checkpoints(self._driver.query)

    def _announce(self, outcome: FragmentOutcome, error: DrivetrainError | None, lost: bool = False) -> None:
        view = None if error is None else error_view(error)
        retryable = error is None or is_retryable(error, running=True)
        self._tell(AttemptChanged(self.fragment, self.number, outcome, view, retryable, lost))

    def _serve_checkpoints(self, query: FragmentQuery) -> Steps[None]:
        """Keep the finished query for checkpoints, in which its sinks may publish, until it is retired."""
        query.forget_error()
        while not self._retired.is_set() and not query.has_failed:
            self._look_at_version()  # new channels end with the fragment
            yield
        failure = query.error
        if self._repairs is not None:
            self._repairs.close()
        query.stop()
        if failure is not None and not self._retired.is_set():
            self._announce(FragmentOutcome.FAILED, error_of(failure, f"fragment {self.fragment}"))

    def _until_over(self) -> Steps[FragmentOutcome]:
        if self._before is not None:
            self._before.retire()
            while not self._before.has_ended:
                yield
            self._before = None
        execution = self._work.execution()
        running = self._work.versions
        if running is not None:
            self._leaving = LeavingAttempt(running, self.fragment)
            if self._role(running) is None:
                return FragmentOutcome.FINISHED  # it has left
        lock = execution.rundir.fragment_lock(self.fragment)
        outcome = None
        try:
            mark = yield from self._locked(lock)
            execution.rundir.ownership.take_fragment(self.fragment, lock)
            DividedState(execution.rundir.fragment(self.fragment)).settle()
            role = None if running is None else self._role(running)
            if running is not None and (role is None or role.how not in (None, "drains")):
                outcome = yield from self._leave(role, None)
                return outcome
            self._require_state(execution)
            self._work.flow.attempted(self.fragment, self.number)
            with self._work.compiling:
                query = execution.fragment(self.fragment, mark)
            recovery = Recovery(execution, log.info, self._work.compiling)
            driver = self._driver = FragmentDriver(
                query, recovery, lambda: self._can_restore(execution), self._work.begin_recovery
            )
            self._repairs = OutsideRepairs({self.fragment: driver}, recovery)
            if running is not None:
                self._versions = AttemptVersions(running, driver, self.number)
            outcome = yield from self._drive(driver)
            return outcome
        finally:
            self._stop(lock, has_finished=outcome is FragmentOutcome.FINISHED)
            execution.rundir.ownership.drop_fragment(self.fragment)

    def _role(self, running: RunningVersions) -> Role | None:
        """The role in which the fragment has to run, so that it can be compiled; None: it has left."""
        try:
            with self._work.compiling:
                running.put_in_force()
                role = running.role(self.fragment)
                if (
                    role is not None and role.how is not None
                ):  # an earlier attempt may have begun to delete it
                    running.versions.rundir.fragment(self.fragment).mkdir(parents=True, exist_ok=True)
                return role
        except InputError as error:
            raise UnavailableError(
                "the version in force cannot be read",
                where=f"fragment {self.fragment}",
                got=f"{error.what}: {error.got}",
                remedy=error.remedy or "see the versions in the state directory",
            ) from error

    def _locked(self, lock: FragmentLock) -> Steps[str]:
        """Wait for the fragment's lock; returns the last holder's mark."""
        java = lost_java.java_process()
        deadline_s = self._now_s + PREDECESSOR_S
        while (mark := lock.take(None if java is None else java.pid)) is None:
            if self._cancelled.is_set() or self._now_s > deadline_s:
                raise lock.refusal()
            yield
        return mark

    def _require_state(self, execution: Execution) -> None:
        """Raise RestoreNeededError if the state of an earlier attempt is lost."""
        fragment = next((f for f in execution.plan.fragments if f.id == self.fragment), None)
        if fragment is not None and is_lost(fragment, execution.rundir):
            raise self._restore_needed()

    def _restore_needed(self) -> RestoreNeededError:
        return RestoreNeededError(
            "the state of the fragment is lost: the application goes back to its last checkpoint",
            where=f"fragment {self.fragment}",
        )

    def _can_restore(self, execution: Execution) -> bool:
        """Mark the fragment's state as damaged; returns whether a checkpoint can replace it."""
        return execution.context.transactional and mark_damaged(execution.rundir, self.fragment)

    def _drive(self, driver: FragmentDriver) -> Steps[FragmentOutcome]:
        if self._cancelled.is_set():
            return FragmentOutcome.CANCELED
        self._look_at_version()
        driver.start()
        while not self._cancelled.is_set():
            driver.query.require_own()
            self._announce_running(driver)
            try:
                driver.step(
                    lambda query: self._note_progress(query, final=query.state is FragmentState.FINISHED)
                )
            except Exception as error:
                if self._versions is None or lost_java.is_lost() or not self._versions.is_by_trial(error):
                    raise
                yield from self._go_back(driver, self._versions, error)
            self._look_at_version()
            role = None if self._versions is None else self._versions.leaves
            if role is not None:
                if role.how != "drains" or self._has_drained(role, driver):
                    return (yield from self._leave(role, driver))
            elif driver.is_finished:
                return FragmentOutcome.FINISHED
            yield
        if self._drained:
            driver.drain()
            deadline_s = self._now_s + DRAIN_S
            while self._drained and driver.is_draining and self._now_s < deadline_s:
                yield
        return FragmentOutcome.CANCELED

    def _has_drained(self, role: Role, driver: FragmentDriver) -> bool:
        assert self._leaving is not None
        return self._may_leave and self._leaving.has_drained(role, driver)

    def _leave(self, role: Role | None, driver: FragmentDriver | None) -> Steps[FragmentOutcome]:
        """Stop for good, and delete the fragment; None: another attempt has done so."""
        assert self._leaving is not None
        if driver is not None:
            driver.stop()
            self._note_progress(driver.query, final=True)
        while role is not None and not self._may_leave:
            if self._cancelled.is_set():
                return FragmentOutcome.CANCELED
            yield
        if role is not None:
            self._leaving.delete(role)
        self._has_left = True
        return FragmentOutcome.FINISHED

    def _look_at_version(self) -> None:
        """Update the version that the fragment runs, and report changes; repair what others read of it."""
        if self._versions is not None:
            self._tell_version(self._versions.look())
        if self._repairs is not None:
            self._repairs.look()

    def _tell_version(self, seen: VersionReport) -> None:
        if seen != self.seen:
            self.seen = seen
            self._work.tell_seen(seen)

    def _go_back(self, driver: FragmentDriver, versions: AttemptVersions, error: Exception) -> Steps[None]:
        """Wait until the trial of the version that has failed is over, then run the one before.

        Raises the error if the version stays in force.
        """
        log.error("fragment %s has failed by a version on trial: %s", self.fragment, error)
        while not self._cancelled.is_set() and versions.is_undecided():
            self._tell_version(versions.seen())
            yield
        if self._cancelled.is_set():
            return
        if not versions.was_rolled_back():
            raise error
        if versions.has_no_place():
            return  # it was new with that version, and leaves
        execution = self._work.execution()
        with self._work.compiling:
            driver.replace_query(lambda query: execution.fragment(self.fragment, counts=query.counts))

    def _announce_running(self, driver: FragmentDriver) -> None:
        if not self._is_running and not driver.is_recovering:
            self._is_running = True
            self._tell(AttemptChanged(self.fragment, self.number, FragmentOutcome.RUNNING))

    def _stop(self, lock: FragmentLock, *, has_finished: bool) -> None:
        if self._repairs is not None and not has_finished:
            self._repairs.close()
        if self._versions is not None:
            self._versions.close()
        if self._driver is not None and not self._has_left:
            if not has_finished:
                self._driver.stop()  # if this raises, the query may still run: keep the lock
            self._note_progress(self._driver.query, final=True)
        lock.release()

    def _note_progress(self, query: FragmentQuery, *, final: bool = False) -> None:
        known = self._progress
        if not final and known is not None and self._now_s - self._progress_s < _PROGRESS_S:
            return
        self._progress_s = self._now_s
        with contextlib.suppress(OSError):  # then the figure is missing; the batches will meet the error, too
            disk = shutil.disk_usage(query.directory)
            # Some file systems have no size (0), or one that no report can hold.
            self.disk = (min(disk.free, LARGEST), min(disk.total, LARGEST)) if disk.total else None
        self._progress = progress_of(self.fragment, self.number, query)
