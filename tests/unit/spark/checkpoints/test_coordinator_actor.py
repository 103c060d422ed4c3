"""The coordinator as an actor: a real actor system, real files, fragments that answer at once or never."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drivetrain.config import Config
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.checkpoint.coordinator import Completed, Emit
from drivetrain.core.checkpoint.transaction import (
    Action,
    ActionAcked,
    BatchesRan,
    CheckpointRecord,
    Command,
    Phase,
    Snapshot,
    Transaction,
)
from drivetrain.errors import InputError, OutputError
from drivetrain.runtime.actor_thread import ActorThread
from drivetrain.runtime.checkpoints.coordinator_actor import (
    CheckpointActor,
    CheckpointEvent,
    CheckpointHost,
    CheckpointMade,
    CheckpointsStopped,
    RequestCheckpoint,
    StopCheckpoints,
)
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.running_config import RunningConfig


@pytest.fixture
def thread() -> Iterator[ActorThread]:
    made = ActorThread("checkpoint-test", Config())
    yield made
    made.close()


class Application:
    """Two fragments, which answer everything at once unless they are `silent`."""

    def __init__(self, thread: ActorThread, home: Path, *, periodic: bool, **keys: str) -> None:
        self.thread = thread
        self.files = CheckpointFiles(home)
        self.commands: list[Command] = []
        self.completed: list[int] = []
        self.figures: CheckpointFigures | None = None
        self.failures: list[BaseException] = []
        self.silent = False
        self.silent_at: Action | None = None
        self.unsent: list[CheckpointEvent] = []
        self.busy = True
        self.full = False
        self.told = threading.Event()
        sets = {"checkpoint.interval": "100 ms"} | {f"checkpoint.{name}": text for name, text in keys.items()}
        config = RunningConfig(home, Config.load(None, {}, sets))
        host = CheckpointHost(
            self.files.transaction,
            self.persist,
            self.tell,
            self.note,
            self.failures.append,
        )
        self.actor = thread.spawn(
            lambda: CheckpointActor("ab", host, config, periodic=periodic), "checkpoints"
        )

    def persist(self, transaction: Transaction) -> None:
        if self.full:
            raise OutputError("no room")
        self.files.persist(transaction)

    def note(self, figures: CheckpointFigures) -> None:
        self.figures = figures

    def tell(self, effect: Emit | Completed) -> None:
        if isinstance(effect, Completed):
            self.completed.append(effect.record.txid)
            if self.busy:
                self.thread.tell(self.actor, CheckpointEvent(BatchesRan("a")))
            return
        command = effect.command
        known = self.files.transaction() or Transaction()
        assert (known.txid, known.round) == (command.txid, command.round), "told before it is persisted"
        self.commands.append(command)
        for fragment in () if self.silent else "ab":
            snapshot = Snapshot(3) if command.action is Action.PREPARE else None
            ack = ActionAcked(fragment, command.action, command.txid, command.round, command.life, snapshot)
            if command.action is self.silent_at:
                self.unsent.append(CheckpointEvent(ack))
            else:
                self.thread.tell(self.actor, CheckpointEvent(ack))

    def want(self, timeout_ms: int = 20_000) -> CheckpointMade:
        return self.thread.ask(
            self.actor, RequestCheckpoint(timeout_ms), CheckpointMade, timeout_ms=timeout_ms + 10_000
        )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_checkpoints_go_on_by_themselves_and_are_persisted(thread: ActorThread, tmp_path: Path) -> None:
    app = Application(thread, tmp_path, periodic=True)
    wait_until(lambda: len(app.completed) >= 3)
    assert app.completed == sorted(set(app.completed))
    kept = app.files.transaction()
    assert kept is not None
    assert kept.record is not None
    assert kept.record.fragments.keys() == {"a", "b"}
    assert app.figures is not None
    assert app.figures.completed >= 2
    assert not app.failures


def test_an_idle_application_makes_none_until_something_runs(thread: ActorThread, tmp_path: Path) -> None:
    app = Application(thread, tmp_path, periodic=True)
    app.busy = False
    wait_until(lambda: app.completed == [0])
    time.sleep(0.5)  # five intervals
    assert app.completed == [0]
    thread.tell(app.actor, CheckpointEvent(BatchesRan("a")))
    wait_until(lambda: app.completed == [0, 1])


def test_what_a_failed_transaction_was_to_save_is_saved_though_nothing_runs(
    thread: ActorThread, tmp_path: Path
) -> None:
    app = Application(thread, tmp_path, periodic=True, timeout="200 ms")
    app.busy = False
    wait_until(lambda: app.completed == [0])
    app.silent = True
    thread.tell(app.actor, CheckpointEvent(BatchesRan("a")))
    wait_until(lambda: app.figures is not None and app.figures.failed >= 1)
    app.silent = False
    wait_until(lambda: len(app.completed) > 1)


def test_who_wants_one_gets_one_that_began_later_and_otherwise_it_sleeps(
    thread: ActorThread, tmp_path: Path
) -> None:
    app = Application(thread, tmp_path, periodic=False)
    first = app.want()
    assert first.record is not None
    assert first.record.txid == 0
    told = len(app.commands)
    second = app.want()
    assert second.record is not None
    assert second.record.round > first.record.round
    assert [c.action for c in app.commands[:told]] == [Action.INITSTATE, Action.PREPARE, Action.COMMIT]
    assert [c.action for c in app.commands[told:]] == [Action.PREPARE, Action.COMMIT]


def test_an_application_that_never_made_one_is_told_nothing(thread: ActorThread, tmp_path: Path) -> None:
    app = Application(thread, tmp_path, periodic=False, timeout="200 ms")
    time.sleep(0.5)  # ten times as long as it looks
    assert app.commands == []
    assert app.files.transaction() is None


def test_a_coordinator_that_starts_again_ends_what_was_begun(thread: ActorThread, tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path)
    record = CheckpointRecord(3, 8, {"a": Snapshot(1), "b": Snapshot(1)})
    files.persist(Transaction(txid=4, phase=Phase.PREPARING, round=9, record=record))
    app = Application(thread, tmp_path, periodic=False)
    wait_until(lambda: len(app.commands) >= 2)
    assert [c.action for c in app.commands] == [Action.ROLLBACK, Action.INITSTATE]
    kept = files.transaction()
    assert kept is not None
    assert (kept.txid, kept.phase) == (3, Phase.COMMITTED)


def test_who_waits_in_vain_is_told_why(thread: ActorThread, tmp_path: Path) -> None:
    app = Application(thread, tmp_path, periodic=False)
    app.silent = True
    answer = app.want(timeout_ms=300)
    assert answer.record is None
    assert answer.reason == "no answer from a, b"


def test_nobody_is_told_what_cannot_be_persisted_and_it_goes_on_when_it_can(
    thread: ActorThread, tmp_path: Path
) -> None:
    app = Application(thread, tmp_path, periodic=True)
    wait_until(lambda: len(app.completed) >= 1)
    app.full = True
    wait_until(lambda: len(app.failures) >= 1)
    before = app.completed[-1]
    app.full = False
    wait_until(lambda: app.completed[-1] > before)
    assert app.completed == sorted(set(app.completed))


def silent_at(action: Action, thread: ActorThread, home: Path) -> Application:
    """An application whose fragments have just held back their answers to this action."""
    app = Application(thread, home, periodic=True)
    app.silent_at = action
    wait_until(lambda: len(app.unsent) == 2)
    return app


def test_answers_that_come_after_a_stop_decide_nothing(thread: ActorThread, tmp_path: Path) -> None:
    app = silent_at(Action.PREPARE, thread, tmp_path)
    thread.ask(app.actor, StopCheckpoints(), CheckpointsStopped, timeout_ms=20_000)
    for answer in app.unsent:
        thread.tell(app.actor, answer)
    made = app.want()  # is answered after them
    assert (made.record, made.reason) == (None, "the application is stopping")
    assert [c.action for c in app.commands] == [Action.INITSTATE, Action.PREPARE]
    kept = app.files.transaction()
    assert kept is not None
    assert kept.phase is Phase.PREPARING


def test_a_stop_waits_until_what_is_decided_is_published(thread: ActorThread, tmp_path: Path) -> None:
    app = silent_at(Action.COMMIT, thread, tmp_path)
    stopped = thread.begin(app.actor, StopCheckpoints(), CheckpointsStopped)
    thread.tell(app.actor, app.unsent[0])
    with pytest.raises(TimeoutError):
        stopped.result(0.3)
    thread.tell(app.actor, app.unsent[1])
    stopped.result(20)
    assert app.completed == [0]
    kept = app.files.transaction()
    assert kept is not None
    assert kept.phase is Phase.COMMITTED


def test_a_stop_waits_for_a_disk_that_is_full(thread: ActorThread, tmp_path: Path) -> None:
    app = silent_at(Action.COMMIT, thread, tmp_path)
    app.silent_at, app.full = None, True
    for answer in app.unsent:
        thread.tell(app.actor, answer)
    stopped = thread.begin(app.actor, StopCheckpoints(), CheckpointsStopped)
    wait_until(lambda: len(app.failures) >= 1)
    assert not stopped.done()
    app.full = False
    stopped.result(20)
    assert app.completed == [0]


@pytest.mark.parametrize("damage", [b"", b"{} 00000000\n", b"half a file"])
def test_a_damaged_transaction_is_not_believed(tmp_path: Path, damage: bytes) -> None:
    files = CheckpointFiles(tmp_path)
    files.persist(Transaction(txid=7))
    (tmp_path / "checkpoints" / "transaction").write_bytes(damage)
    with pytest.raises(InputError, match="transaction of the last checkpoint cannot be read"):
        files.transaction()


def test_lives_are_kept_by_fragment(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path)
    assert files.lives.newest("a") == 0
    files.lives.note("a", 2)
    files.lives.note("b", 3)
    assert (CheckpointFiles(tmp_path).lives.newest("a"), files.lives.newest("b")) == (2, 3)


def test_after_the_end_nothing_is_persisted_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next run of the application, in the same process, would find an older transaction again."""
    thread = ActorThread("checkpoint-test", Config())
    app = Application(thread, tmp_path, periodic=False)
    begun, go_on = threading.Event(), threading.Event()
    written: list[Transaction] = []
    persist = app.files.persist

    def slowly(transaction: Transaction) -> None:
        begun.set()
        assert go_on.wait(20)
        persist(transaction)
        written.append(transaction)

    monkeypatch.setattr(app.files, "persist", slowly)
    thread.begin(app.actor, RequestCheckpoint(20_000), CheckpointMade)
    assert begun.wait(20)
    threading.Timer(0.3, go_on.set).start()  # the run ends while the disk is slow
    thread.close()
    assert len(written) == 1


def test_an_interval_that_changes_while_it_runs_is_kept_from_then_on(
    thread: ActorThread, tmp_path: Path
) -> None:
    app = Application(thread, tmp_path, periodic=True, interval="1 h")
    wait_until(lambda: app.completed == [0])
    RunningConfig(tmp_path, Config()).change({"checkpoint.interval": "100 ms"})
    wait_until(lambda: len(app.completed) >= 3)
