"""Checkpoints inside an application master: a real actor system, real files, executors that answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drivetrain.actor import Actor, ActorRef, ActorSystem, Message, PoisonPill
from drivetrain.api import Application, agg, sinks, sources
from drivetrain.cluster.app_master.app_master_messages import RunAction, Setup
from drivetrain.cluster.app_master.stream.application_checkpoints import (
    ApplicationCheckpoints,
    CheckpointUpdate,
)
from drivetrain.cluster.app_master.stream.application_copies import ApplicationCopies
from drivetrain.cluster.app_master.stream.checkpoint_relay import CheckpointPort, CheckpointTraffic
from drivetrain.cluster.app_master.stream.planned_application import PlannedApplication, vertices_of
from drivetrain.cluster.messages.checkpoints import CheckpointAnswered, MakeSavepoint, SavepointMade
from drivetrain.config import Config
from drivetrain.core.checkpoint.transaction import Action, ActionAcked, Command, Snapshot
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.runtime.actor_thread import ActorThread
from drivetrain.runtime.checkpoints import continuation_watch
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.savepoint_manifest import verified
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.simulator import Simulation, simulate
from model_store import ModelStore

ME = Preparer("app-1", 1, "me")
PLACE = "s3://states/app"


def chained() -> Application:
    app = Application("app")
    counted = (
        app.read(sources.generate(rows=10), name="rows").group_by("id").aggregate(step="one", n=agg.count())
    )
    counted.group_by("n").aggregate(step="two", m=agg.count()).sink(sinks.none(), name="out")
    return app


class Host(Actor):
    """What an application master does of it; both fragments run in executors, which answer at once."""

    def __init__(self, config: Config, rundir: RunDirectory, copies: ApplicationCopies | None = None) -> None:
        graph = chained().graph()
        self.plan = make_plan(graph)
        self.planned = PlannedApplication(vertices_of(self.plan), self.plan, "app", {})
        self.config = config
        self.snapshots = Snapshots(CheckpointFiles(rundir.home).snapshots)
        self.rundir = rundir
        self.commands: list[tuple[str, Command]] = []
        self.failures: list[str] = []
        self.asked = 0
        self.copies = copies
        self.is_published = threading.Event()

    def pre_start(self) -> None:
        self.checkpoints = ApplicationCheckpoints(
            self.context, self.planned, self.plan, self.config, ME, lambda: 77, self._tell, self.copies
        )

    def receive(self, message: Message) -> None:
        match message:
            case CheckpointUpdate():
                self.failures += [message.failed] if message.failed is not None else []
                self.checkpoints.take(message)
            case CheckpointAnswered():
                self.checkpoints.answered(message)
            case RunAction(action):
                action()
            case MakeSavepoint():
                assert self.context.sender is not None
                self.checkpoints.save(message, self.context.sender)

    def conclude(self) -> None:
        self.asked += 1
        if self.checkpoints.is_all_published(self.conclude):
            self.is_published.set()

    def _tell(self, fragment: str, input: str, command: Command) -> None:
        self.commands.append((fragment, command))
        for answering in ("one", "two"):
            snapshot = None
            if command.action is Action.PREPARE:
                self.snapshots.take(answering, command.round, self.rundir.fragment(answering), -1)
                snapshot = Snapshot(-1)
            ack = ActionAcked(answering, command.action, command.txid, command.round, command.life, snapshot)
            self.context.me.tell(CheckpointAnswered(1, answering, acked=ack))


@pytest.fixture
def thread() -> Iterator[ActorThread]:
    made = ActorThread("checkpoints-test", Config())
    yield made
    made.close()


@pytest.fixture
def rundir(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(str(tmp_path / "state"), "app", {})
    made.acquire()
    made.begin(make_plan(chained().graph()))
    made.preparation.note(ME, {})
    return made


@dataclass
class Hosted:
    """A host that runs, and the ways to it."""

    actor: Host
    thread: ActorThread
    ref: ActorRef

    def do(self, *actions: Callable[[], None]) -> None:
        """Have it do something, one after the other."""
        for action in actions:
            self.thread.tell(self.ref, RunAction(action))

    def save(self, place: Path) -> SavepointMade:
        """Ask for a savepoint."""
        question = MakeSavepoint(str(place), 10_000)
        return self.thread.ask(self.ref, question, SavepointMade, timeout_ms=20_000)


HostOf = Callable[..., Hosted]


@pytest.fixture
def host_of(thread: ActorThread, rundir: RunDirectory, tmp_path: Path) -> HostOf:
    def make(mode: str, copies: ApplicationCopies | None = None) -> Hosted:
        sets = {"state.dir": str(tmp_path / "state"), "checkpoint.mode": mode, "checkpoint.interval": "10 s"}
        actor = Host(Config.load(None, {}, sets), rundir, copies)
        return Hosted(actor, thread, thread.spawn(lambda: actor, "host"))

    return make


def test_the_job_is_concluded_when_all_is_published(host_of: HostOf, rundir: RunDirectory) -> None:
    host = host_of("on")
    actor, published = host.actor, host.actor.is_published
    host.do(actor.conclude)
    assert published.wait(20)
    transaction = CheckpointFiles(rundir.home).transaction()
    assert transaction is not None
    assert transaction.record is not None
    assert {fragment for fragment, _ in actor.commands} == {"one"}
    assert not actor.checkpoints.may_have_unpublished
    published.clear()
    host.do(lambda: actor.checkpoints.failed("two", "it died"), actor.conclude)
    assert published.wait(20)
    again = CheckpointFiles(rundir.home).transaction()
    assert again is not None
    assert again.round > transaction.round


def test_without_checkpoints_nothing_is_waited_for_and_nothing_is_written(
    host_of: HostOf, rundir: RunDirectory
) -> None:
    host = host_of("off")
    host.do(host.actor.conclude)
    assert host.actor.is_published.wait(20)
    assert CheckpointFiles(rundir.home).transaction() is None


@pytest.mark.parametrize("mode", ["on", "off"])
def test_a_savepoint_is_made_where_the_state_is(host_of: HostOf, tmp_path: Path, mode: str) -> None:
    host, place = host_of(mode), tmp_path / "saved"
    assert host.save(place).error is None
    assert verified(place).clock_ms == 77
    error = host.save(place).error
    assert error is not None
    assert error.code == "output"


def test_an_application_master_that_another_one_has_replaced_changes_no_record(
    host_of: HostOf, rundir: RunDirectory, tmp_path: Path
) -> None:
    host = host_of("on")
    host.do(host.actor.conclude)
    assert host.actor.is_published.wait(20)
    before = CheckpointFiles(rundir.home).transaction()
    rundir.preparation.note(ME._replace(epoch=2), {})
    error = host.thread.ask(
        host.ref, MakeSavepoint(str(tmp_path / "saved"), 200), SavepointMade, timeout_ms=20_000
    ).error
    assert error is not None
    assert CheckpointFiles(rundir.home).transaction() == before
    assert "another application master" in host.actor.failures[0]


def test_a_checkpoint_is_in_the_store_before_it_is_decided(
    host_of: HostOf, rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuation_watch, "LOOK_S", 0.05)
    store, taken_over = ModelStore(), threading.Event()
    CopiedCheckpoints(store, "app", PLACE, rundir.path).claim(starts_over=False)
    copies = CopiedCheckpoints(store, "app", PLACE, rundir.path)
    host = host_of("on", ApplicationCopies(rundir, copies, ME, lambda _: taken_over.set()))
    host.do(host.actor.conclude)
    assert host.actor.is_published.wait(20)
    transaction, newest = CheckpointFiles(rundir.home).transaction(), copies.newest()
    assert transaction is not None
    assert newest is not None
    assert newest.manifest is not None
    assert newest.manifest.record == transaction.record
    figures = host.actor.checkpoints.figures
    assert figures is not None
    assert figures.copied_to == PLACE

    other = rundir.path.parent / "elsewhere"
    other.mkdir()
    CopiedCheckpoints(store, "app", PLACE, other).claim(starts_over=False)
    host.do(lambda: host.actor.checkpoints.failed("two", "it died"), host.actor.conclude)
    assert taken_over.wait(20)
    assert copies.newest() != newest
    decided = CheckpointFiles(rundir.home).transaction()
    assert decided is not None
    assert decided.record == transaction.record, "nothing is decided that the store does not have"


@pytest.mark.parametrize("mode", ["on", "off"])
def test_finished_fragments_may_owe_output_before_there_are_checkpoints(host_of: HostOf, mode: str) -> None:
    actor = host_of(mode).actor
    nothing: Any = None
    setup = Setup("app-1", 1, nothing, (), actor.config, "", lambda: 0)
    traffic = CheckpointTraffic(actor.context, setup, actor.config, nothing)
    assert traffic.may_have_unpublished(actor.planned) is (mode == "on")


def test_nothing_is_decided_where_checkpoints_are_the_state_and_cannot_be_copied(host_of: HostOf) -> None:
    actor, failures = host_of("on").actor, []
    sets = {
        "state.dir": "s3://states/x",
        "s3.access-key": "${TESTS_NO_SUCH_KEY}",
        "s3.secret-key": "${NEITHER}",
    }
    nothing: Any = None
    port = CheckpointPort(nothing, nothing, nothing, nothing, nothing, nothing, failures.append)
    setup = Setup("app-1", 1, nothing, (), Config.load(None, {}, sets), "", lambda: 0)
    traffic = CheckpointTraffic(actor.context, setup, setup.config, port)
    traffic.prepared(actor.planned)
    assert "TESTS_NO_SUCH_KEY" in str(failures[0])
    traffic.runs("one", 1, actor.planned, do_all_run=True)
    assert traffic.figures is None
    assert traffic.may_have_unpublished(actor.planned)
    assert not traffic.is_all_published(lambda: None)


@simulate(seeds=1)
async def test_a_coordinator_that_has_ended_is_asked_now_and_then(
    simulation: Simulation, rundir: RunDirectory
) -> None:
    config = Config.load(None, {}, {"state.dir": str(rundir.path.parent), "checkpoint.mode": "on"})
    system = ActorSystem("one", config=config)
    actor = Host(config, rundir)
    ref = system.spawn(lambda: actor, "host")
    await simulation.sleep(1)
    actor.checkpoints._actor.tell(PoisonPill())
    await simulation.sleep(1)
    ref.tell(RunAction(actor.conclude))
    await simulation.sleep(60)
    assert 2 < actor.asked < 30
