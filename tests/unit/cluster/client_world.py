"""A scripted cluster as a client sees it: masters that share a registry, application masters, workers.

The test sets the script: which master leads, which answers are lost, what an application master answers.
The parts send a client only what the protocol defines.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from drivetrain.actor import Actor, ActorRef, ActorSystem, Failure, Message
from drivetrain.cluster.messages.applications import (
    Accepted,
    Applications,
    ApplicationSpec,
    ApplicationState,
    ApplicationSummary,
    ApplicationView,
    FoundApplication,
    GetApplication,
    GetApplications,
    GetMasters,
    GetWorkers,
    Kill,
    Masters,
    MasterView,
    Restart,
    Submit,
    Workers,
    WorkerView,
)
from drivetrain.cluster.messages.changing import (
    ChangeConfiguration,
    ChangeGraph,
    ChangeStatus,
    ConfigurationChanged,
    GetChange,
    GetVersions,
    GiveUpChange,
    ScaleFragment,
    Versions,
)
from drivetrain.cluster.messages.code import CodeChunk, CodeStored, GetCode, PutCode
from drivetrain.cluster.messages.following import (
    Follow,
    FragmentView,
    GetHistory,
    GetStatus,
    GetThreads,
    HistoryReport,
    JobState,
    JobStatus,
    Status,
    ThreadStacks,
    Unfollow,
)
from drivetrain.cluster.messages.launching import LogChunk, ReadLog
from drivetrain.cluster.messages.leadership import GetLeader, Leader, NotLeader
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.job.history import History
from drivetrain.runtime.clock_actor import ClockReply, WaitForClock

SPEC = ApplicationSpec(name="wc", code="0" * 64, file="wc.py", settings={"input": "/some/text"})


def line_of(view: ApplicationView) -> ApplicationSummary:
    return ApplicationSummary(
        view.app_id,
        view.spec.name,
        view.state,
        view.epoch,
        view.submitted_ms,
        view.ended_ms,
        view.worker,
        view.why,
        view.clock_ms,
        view.graph_version,
        view.spec.priority,
        view.spec.file,
        view.spec.code,
    )


def view_of(app_id: str = "wc-1", **changes: object) -> ApplicationView:
    made = ApplicationView(app_id, SPEC, ApplicationState.PENDING, 0, 1_000)
    return msgspec.structs.replace(made, **changes)


def status_of(app_id: str = "wc-1", epoch: int = 1, **changes: object) -> JobStatus:
    made = JobStatus(app_id, epoch, JobState.RUNNING, 10_000, 12_500)
    return msgspec.structs.replace(made, **changes)


def finished(app_id: str = "wc-1", epoch: int = 1) -> JobStatus:
    return status_of(
        app_id,
        epoch,
        state=JobState.FINISHED,
        fragments=(FragmentView("count", "finished", 1, batch_id=2, rows_total=100),),
        counts={"lines": (100, 100, 0, 0), "count": (100, 7, 0, 0)},
        accumulators={"bad lines": 3},
        printed="done\n",
    )


@dataclass
class World:
    """The state that all masters share, and the script."""

    places: list[str] = field(default_factory=list)
    leader: str | None = None
    term: int = 1
    masters: dict[str, ActorRef] = field(default_factory=dict)
    applications: dict[str, ApplicationView] = field(default_factory=dict)
    submissions: dict[str, str] = field(default_factory=dict)
    code: dict[str, dict[str, bytearray]] = field(default_factory=lambda: defaultdict(dict))
    workers: list[WorkerView] = field(default_factory=list)
    received: list[Message] = field(default_factory=list)
    lost: list[type[Message]] = field(default_factory=list)
    """The answers to these messages are lost, once each; the requests are carried out."""
    leads_after: list[tuple[Callable[[Message], bool], str | None]] = field(default_factory=list)
    """Changes of the leader, in order: when a message for which the function is true was handled, this
    master leads."""

    def lead(self, place: str | None) -> None:
        self.leader, self.term = place, self.term + 1

    def put(self, view: ApplicationView) -> None:
        self.applications[view.app_id] = view

    def change(self, app_id: str, **changes: object) -> None:
        self.put(msgspec.structs.replace(self.applications[app_id], **changes))

    def end(
        self, app_id: str, status: JobStatus, state: ApplicationState = ApplicationState.SUCCEEDED
    ) -> None:
        self.change(app_id, state=state, ended_ms=20_000, result=msgspec.msgpack.encode(status))

    def page(self, before: int | None) -> Applications:
        """Two applications at a time."""
        lines = [line_of(view) for view in reversed(self.applications.values())]
        first = before or 0
        return Applications(tuple(lines[first : first + 2]), first + 2 if len(lines) > first + 2 else None)

    def find(self, app: str) -> ApplicationView | None:
        named = [view for view in self.applications.values() if view.spec.name == app]
        live = [view for view in named if not view.state.is_over]
        return self.applications.get(app) or next(iter(live or named[::-1]), None)

    def count(self, kind: type[Message]) -> int:
        return sum(isinstance(message, kind) for message in self.received)


class ScriptedMaster(Actor):
    """The master at `place`."""

    def __init__(self, world: World, place: str) -> None:
        self.world = world
        self.place = place

    def pre_start(self) -> None:
        self.world.masters[self.place] = self.context.me

    def receive(self, message: Message) -> None:
        world = self.world
        world.received.append(message)
        if isinstance(message, GetLeader):
            self.context.reply(self.leader())
            return
        if isinstance(message, GetMasters):
            self.context.reply(
                Masters(tuple(MasterView(p, p == world.leader, world.term, 0) for p in world.places))
            )
            return
        if isinstance(message, GetCode):
            self.context.reply(self.get_code(message))
            return
        if world.leader != self.place:
            self.context.reply(NotLeader(self.leader()))
            return
        answer = self.answer(message)
        if world.leads_after and world.leads_after[0][0](message):
            world.lead(world.leads_after.pop(0)[1])
        if type(message) in world.lost:
            world.lost.remove(type(message))
            return
        self.context.reply(answer)

    def leader(self) -> Leader:
        place = self.world.leader
        return Leader(self.world.term, place, None if place is None else self.world.masters.get(place))

    def answer(self, message: Message) -> Message:
        world = self.world
        match message:
            case Submit(submission_id, spec):
                return self.submit(submission_id, spec)
            case PutCode():
                return self.put_code(message)
            case GetApplications():
                return world.page(message.before)
            case GetWorkers():
                return Workers(tuple(world.workers))
            case GetApplication(app) | Kill(app) | Restart(app):
                view = world.find(app)
                if view is None:
                    return Failure("unknown-application", f"there is no {app}")
                return self.act(message, view)
        raise AssertionError(message)

    def submit(self, submission_id: str, spec: ApplicationSpec) -> Message:
        world = self.world
        if submission_id in world.submissions:
            return Accepted(world.submissions[submission_id])
        held = world.code[self.place].get(spec.code, b"")
        if hashlib.sha256(held).hexdigest() != spec.code:
            return Failure("no-code", "the code is not here")
        taken = world.find(spec.name)
        if taken is not None and not taken.state.is_over:
            return Failure("name-taken", f"{taken.app_id} has the name {spec.name}")
        app_id = f"{spec.name}-{len(world.applications) + 1}"
        world.put(ApplicationView(app_id, spec, ApplicationState.PENDING, 0, 1_000))
        world.submissions[submission_id] = app_id
        return Accepted(app_id)

    def put_code(self, message: PutCode) -> Message:
        held = self.world.code[self.place].setdefault(message.sha256, bytearray())
        if message.data and message.offset == len(held):
            held += message.data
        complete = hashlib.sha256(held).hexdigest() == message.sha256
        return CodeStored(message.sha256, len(held), complete)

    def get_code(self, message: GetCode) -> Message:
        held = bytes(self.world.code[self.place].get(message.sha256, b""))
        if not held:
            return Failure("no-code", "the code is not here")
        return CodeChunk(message.sha256, message.offset, len(held), held[message.offset :])

    def act(self, message: Message, view: ApplicationView) -> Message:
        world = self.world
        if isinstance(message, Kill):
            if view.state.is_over:
                return Failure("already-over", "it is over")
            world.change(view.app_id, state=ApplicationState.KILLED, ended_ms=30_000)
        elif isinstance(message, Restart):
            spec = msgspec.structs.replace(view.spec, replay_from_ms=message.replay_from_ms)
            epoch = view.epoch + 1
            world.change(view.app_id, state=ApplicationState.PENDING, ended_ms=None, epoch=epoch, spec=spec)
        return FoundApplication(world.applications[view.app_id])


class ScriptedAppMaster(Actor):
    """Sends its followers each given status, and answers requests about changes with the given
    `ChangeStatus`.

    Each of those answers one request, the last one all that follow. Requested changes are added to `asked`.
    """

    def __init__(self, status: JobStatus, asked: list[Message]) -> None:
        self.status = status
        self.asked = asked
        self.versions = Versions()
        self.stands = [ChangeStatus(ChangeState(0))]
        self.configured = ConfigurationChanged()
        self.history = History()
        self.followers: dict[ActorRef, None] = {}

    def receive(self, message: Message) -> None:  # noqa: C901 - one line for each kind of message
        match message:
            case Follow(follower):
                self.followers[follower] = None
                follower.tell(Status(self.status))
            case Unfollow(follower):
                self.followers.pop(follower, None)
            case GetStatus():
                self.context.reply(Status(self.status))
            case GetHistory():
                self.context.reply(HistoryReport(self.history))
            case GetThreads(executor):
                self.context.reply(ThreadStacks(executor or "first", '"MainThread"', '"main"'))
            case WaitForClock(clock_ms):
                reached_ms = self.status.clock_ms
                is_reached = reached_ms is not None and reached_ms >= clock_ms
                self.context.reply(ClockReply(reached_ms, is_reached))
            case HistoryReport(history):
                self.history = history
            case Versions():
                self.versions = message
            case ChangeStatus():
                self.stands.append(message)
            case ConfigurationChanged():
                self.configured = message
            case ChangeConfiguration():
                self.asked.append(message)
                self.context.reply(self.configured)
            case GetVersions():
                self.context.reply(self.versions)
            case GetChange() | ChangeGraph() | ScaleFragment() | GiveUpChange():
                if not isinstance(message, GetChange):
                    self.asked.append(message)
                if len(self.stands) > 1:
                    del self.stands[0]
                self.context.reply(self.stands[0])
            case Status(status):
                self.status = status
                for follower in self.followers:
                    follower.tell(message)


class ScriptedWorker(Actor):
    """Keeps logs by process, of the application `app_id`; the test appends to them."""

    def __init__(self, app_id: str, logs: dict[str, bytes]) -> None:
        self.app_id = app_id
        self.logs = logs

    def receive(self, message: Message) -> None:
        assert isinstance(message, ReadLog)
        process = message.process or next(iter(self.logs), None)
        if message.app_id != self.app_id or process not in self.logs:
            self.context.reply(Failure("no-log", "no such log here"))
            return
        data = self.logs[process]
        start = max(0, len(data) - message.max_bytes) if message.offset is None else message.offset
        piece = data[start : start + message.max_bytes]
        self.context.reply(LogChunk(process, piece, start + len(piece), tuple(self.logs)))


def serve_app_master(system: ActorSystem, status: JobStatus, asked: list[Message] | None = None) -> ActorRef:
    return system.spawn(lambda: ScriptedAppMaster(status, [] if asked is None else asked))


def worker_view(system: ActorSystem, name: str, logs: dict[str, bytes], app_id: str = "wc-1") -> WorkerView:
    worker = system.spawn(lambda: ScriptedWorker(app_id, logs))
    return WorkerView(f"{name}-id", name, name, 2, 1, 1_000, worker=worker, launched=(f"{app_id}/1",))
