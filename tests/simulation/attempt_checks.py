"""The invariants of attempts in a simulated cluster, checked by their changes and their reports.

An attempt reports every error of its steps as the failure of a fragment, and another attempt follows, so a
failed assertion inside an attempt would look like an injected fault. So violations are recorded here, and
`AttemptWorld.check` raises them.

1. Only the holder of a fragment's lock, or of the application's, changes Spark's checkpoint of the fragment.
2. A query starts from the batches that it was compiled with, and as the only one of its fragment.
3. An attempt reports `RUNNING` first and once, after the previous attempt in this process has stopped
   taking steps, and then one end; a finished one may fail afterwards.
4. When an attempt has ended, its query has stopped, and the lock is free.
5. Transactions are persisted by the newest preparer only, or by the executor that prepares.
6. No attempt fails because of a defect.
7. Messages of another epoch change nothing in an executor, and reach no coordinator of checkpoints.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from shell_engine import StandInEngine, StandInQuery

from drivetrain.actor import Message
from drivetrain.cluster.app_master.stream.application_checkpoints import ApplicationCheckpoints
from drivetrain.cluster.executor.executor import Executor
from drivetrain.cluster.executor.fragment_attempt import Attempt, AttemptChanged
from drivetrain.cluster.executor.spark_work import SparkWork
from drivetrain.cluster.messages.checkpoints import CheckpointAnswered
from drivetrain.cluster.messages.executing import FragmentOutcome
from drivetrain.core.checkpoint.transaction import Command, Transaction
from drivetrain.errors import UnavailableError
from drivetrain.file_lock import FileLock
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.preparation import Preparation, Preparer
from drivetrain.simulator.process_life import CURRENT_LIFE, Life
from drivetrain.spark.session.offset_log import batch_numbers

if TYPE_CHECKING:
    from attempt_process import ExecutorProcess

ENDS = (FragmentOutcome.FINISHED, FragmentOutcome.CANCELED, FragmentOutcome.FAILED)


class AttemptChecks:
    """Collects violations; `epoch_of` returns the epoch of a process."""

    def __init__(self, epoch_of: Callable[[Life], int]) -> None:
        self.violations: list[str] = []
        self._epoch_of = epoch_of
        self._held: dict[Path, tuple[Life, FileLock]] = {}
        """The exclusive holder of each lock."""
        self.prepared_epoch = 0
        """The newest epoch for which executors have prepared the application; 0: none yet."""
        self._preparer: tuple[Preparation, Preparer] | None = None
        self._handles_old = False
        self._reported: dict[tuple[str, str, int], list[FragmentOutcome]] = {}

    def wrong(self, what: str) -> None:
        """Record a violation."""
        self.violations.append(what)

    # -- locks and files -------------------------------------------------------------------------------

    def locked(self, lock: FileLock, *, alone: bool) -> None:
        life = CURRENT_LIFE.get()
        if life is not None and alone:
            self._held[lock.path] = life, lock
        elif self._held.get(lock.path, (None, None))[1] is lock:
            del self._held[lock.path]

    def released(self, lock: FileLock) -> None:
        if self._held.get(lock.path, (None, None))[1] is lock:
            del self._held[lock.path]

    def holds(self, life: Life, lock: Path) -> bool:
        """Whether a process holds the lock exclusively."""
        return self._held.get(lock, (None, None))[0] is life

    def changes(self, life: Life, path: str) -> None:
        """Check a change of a file that a process is about to make."""
        parts = Path(path).parts
        if "fragments" not in parts:
            return
        at = parts.index("fragments")
        if parts[at + 2 : at + 3] != ("checkpoint",):
            return
        own, home = Path(*parts[: at + 2]), Path(*parts[:at])
        state = home.parent.parent if home.parent.name == "lives" else home
        if not self.holds(life, own / "lock") and not self.holds(life, state / "lock"):
            self.wrong(f"{life} changes {'/'.join(parts[at:])} without the lock")

    # -- the record of checkpoints ---------------------------------------------------------------------

    def prepared(self, preparation: Preparation, preparer: Preparer) -> None:
        """Check the note by which executors name the application master for which they have prepared."""
        if preparer.epoch < self.prepared_epoch:
            self.wrong(f"epoch {preparer.epoch} is prepared after {self.prepared_epoch}")
        self.prepared_epoch, self._preparer = preparer.epoch, (preparation, preparer)

    def persists(self, _transaction: Transaction) -> None:
        life = CURRENT_LIFE.get()
        if life is None:
            return
        epoch = self._epoch_of(life)
        if epoch < self.prepared_epoch:
            self.wrong(f"{life} replaces the record of checkpoints of epoch {self.prepared_epoch}")
        if epoch > self.prepared_epoch and self._preparer is not None:
            Context().run(self._nobody_else_decides, *self._preparer)

    def _nobody_else_decides(self, preparation: Preparation, preparer: Preparer) -> None:
        """While an executor prepares, it decides: the previous preparer may not, though nothing is prepared
        yet."""
        with contextlib.suppress(UnavailableError), preparation.while_prepared_by(preparer):
            self.wrong(f"epoch {preparer.epoch} may decide while its successor prepares")

    # -- attempts --------------------------------------------------------------------------------------

    def tells(self, process: ExecutorProcess, attempt: Attempt, told: AttemptChanged) -> None:
        """Check a new outcome that an attempt sends to its executor."""
        key = process.launch.launch_id, told.fragment, told.attempt
        before = self._reported.setdefault(key, [])
        if told.outcome is FragmentOutcome.RUNNING:
            is_sound = not before and not any(
                other.fragment == told.fragment and other is not attempt and not other.has_ended
                for other in process.attempts
            )
        else:
            ended = [outcome for outcome in before if outcome in ENDS]
            is_sound = not ended or (ended == [FragmentOutcome.FINISHED] and told.outcome is ENDS[2])
        if not is_sound:
            self.wrong(f"{key} says {told.outcome} after {before}")
        before.append(told.outcome)
        if told.error is not None and told.error.code == "internal":
            self.wrong(f"{key} fails by a defect: {told.error.what}")
        if told.outcome in ENDS:
            self._is_over(process, attempt, key)

    def _is_over(self, process: ExecutorProcess, attempt: Attempt, key: tuple[str, str, int]) -> None:
        driver = attempt._driver
        if driver is None:
            return
        checkpoint = driver.query.checkpoint
        if any(query.is_active and query.checkpoint == checkpoint for query in process.engine.queries):
            self.wrong(f"{key} has ended, and its query runs")
        if self.holds(CURRENT_LIFE.get(), checkpoint.parent / "lock"):  # type: ignore[arg-type]
            self.wrong(f"{key} has ended, and holds its lock")

    # -- messages of another epoch ---------------------------------------------------------------------

    @contextlib.contextmanager
    def unchanged_by(self, message: Message, executor: Executor) -> Iterator[None]:
        """Check that the executor changes nothing when it handles a message of another epoch."""
        epoch = executor._launch.epoch
        is_old = getattr(message, "epoch", epoch) != epoch
        before = _state_of(executor)
        self._handles_old = is_old
        try:
            yield
        finally:
            self._handles_old = False
        if is_old and _state_of(executor) != before:
            self.wrong(f"{message} of another epoch has changed an executor of epoch {epoch}")

    def commanded(self) -> None:
        """A checkpoint command, or a flow message, was passed on to a fragment."""
        if self._handles_old:
            self.wrong("a message of another epoch has gone on to a fragment")

    def answered(self, message: CheckpointAnswered) -> None:
        """Check an answer that the coordinator of checkpoints gets."""
        life = CURRENT_LIFE.get()
        if life is not None and message.epoch != self._epoch_of(life):
            self.wrong(f"{life} takes an answer of epoch {message.epoch}")


def _state_of(executor: Executor) -> tuple[object, ...]:
    """The parts of an executor that messages change."""
    attempts = {attempt.fragment: attempt.number for attempt in executor._attempts.values()}
    cancelled = {a.fragment for a in executor._attempts.values() if a._cancelled.is_set()}
    waiting, ends = dict(executor._waiting), executor._exit_code is not None
    return attempts, cancelled, dict(executor._cancelled), waiting, ends


class CheckedEngine(StandInEngine):
    """The engine of one executor; `others` are the queries that run in other processes."""

    others: Callable[[], list[StandInQuery]]
    checks: AttemptChecks

    def compile(self, context: Any, fragment: Any, aside: Path | None = None) -> Any:
        trunk, branches = super().compile(context, fragment, aside)
        if aside is None:
            trunk.df.known = _known(context.rundir.fragment(fragment.id) / "checkpoint")
        return trunk, branches

    def start(self, trunk: Any, name: str, checkpoint: Any, on_batch: Any) -> StandInQuery:
        if any(query.checkpoint == checkpoint for query in self.others()):
            self.checks.wrong(f"two executors run {name}")
        known = getattr(trunk.df, "known", None)
        if known is not None and known != (now := _known(checkpoint)):
            self.checks.wrong(f"{name} was compiled with {known}, and starts with {now}")
        try:
            return super().start(trunk, name, checkpoint, on_batch)
        except AssertionError as error:
            self.checks.wrong(f"{name}: {error}")
            raise


def _known(checkpoint: Path) -> str:
    """The batches that Spark has planned and committed, as text."""
    numbers = {log: sorted(batch_numbers(checkpoint / log))[-3:] for log in ("offsets", "commits")}
    return json.dumps(numbers)


@contextlib.contextmanager
def judged(checks: AttemptChecks) -> Iterator[None]:
    """Report locks, preparations and records of checkpoints to `checks`."""
    take, wait, release = FileLock.take, FileLock.wait, FileLock.release
    persist, note = CheckpointFiles.persist, Preparation.note
    answered, command = ApplicationCheckpoints.answered, SparkWork.take_command

    def taken(lock: FileLock, *, shared: bool = False) -> bool:
        is_free = take(lock, shared=shared)
        if is_free:
            checks.locked(lock, alone=not shared)
        return is_free

    def waited(lock: FileLock, *, shared: bool = False) -> None:
        wait(lock, shared=shared)
        checks.locked(lock, alone=not shared)

    def released(lock: FileLock) -> None:
        release(lock)
        checks.released(lock)

    def persisted(files: CheckpointFiles, transaction: Transaction) -> None:
        checks.persists(transaction)
        persist(files, transaction)

    def noted(preparation: Preparation, preparer: Preparer, schemas: Any) -> None:
        note(preparation, preparer, schemas)
        checks.prepared(preparation, preparer)

    def taken_answer(checkpoints: ApplicationCheckpoints, message: CheckpointAnswered) -> None:
        checks.answered(message)
        answered(checkpoints, message)

    def taken_command(work: SparkWork, fragment: str, input: str, told: Command) -> None:
        checks.commanded()
        command(work, fragment, input, told)

    with pytest.MonkeyPatch.context() as patched:
        for owner, name, by in (
            (FileLock, "take", taken),
            (FileLock, "wait", waited),
            (FileLock, "release", released),
            (CheckpointFiles, "persist", persisted),
            (Preparation, "note", noted),
            (ApplicationCheckpoints, "answered", taken_answer),
            (SparkWork, "take_command", taken_command),
        ):
            patched.setattr(owner, name, by)
        yield
