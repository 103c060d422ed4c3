"""The actor `/user/master`: the one address at which a master is reached.

Design: requests for the leader are forwarded to its actors, `applications`, `workers` and `scheduler`,
which are created from the registry at the beginning of each term and stopped at its end. Other masters answer
`NotLeader`, or, when no master has led for `quorum_timeout_ms`, `Failure("no-quorum")`. Messages of other
masters go to `election`, `replica`, `code` and `agreement`, which live as long as the process.

Invariants:
1. Nothing reaches an actor unless this master holds the lease in the actor's term at that moment.
2. Every request for the leader that cannot be forwarded is answered.

Called by `master_process`. All processes of the cluster send it messages (`drivetrain.cluster.messages`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from drivetrain.actor import ActorRef, Failure, Message, Terminated
from drivetrain.actor.disk import Disk
from drivetrain.cluster.guarded import GuardedActor
from drivetrain.cluster.master.applications.application_manager import AppManager
from drivetrain.cluster.master.applications.code_store import CodeStore
from drivetrain.cluster.master.master_messages import (
    LeaderActorFailed,
    Leadership,
    LeadershipBegan,
    LeadershipEnded,
    RegistryTakenOver,
    Resign,
    StepDown,
)
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.master.registry.application_registry import RegistryActor
from drivetrain.cluster.master.registry.election_actor import ElectionActor, VoteStore
from drivetrain.cluster.master.registry.master_list import Agreement
from drivetrain.cluster.master.registry.replica import Replica, ReplicaStore
from drivetrain.cluster.master.workers.scheduler import Scheduler
from drivetrain.cluster.master.workers.worker_manager import WorkerManager
from drivetrain.cluster.messages.applications import (
    GetApplication,
    GetApplications,
    GetMasters,
    GetWorkers,
    Kill,
    Masters,
    MasterView,
    Restart,
    Submit,
)
from drivetrain.cluster.messages.code import GetCode, PutCode
from drivetrain.cluster.messages.launching import Launched, LaunchFailed, ProcessExited
from drivetrain.cluster.messages.leadership import GetLeader, Leader, NotLeader
from drivetrain.cluster.messages.registration import (
    AppMasterReport,
    RegisterAppMaster,
    RegisterWorker,
    WorkerReport,
)
from drivetrain.cluster.messages.replication import (
    GetMasterList,
    Gossip,
    LeaseReply,
    LeaseRequest,
    ReadDigest,
    ReadEntries,
    ReleaseLease,
    ReplicateCode,
    VoteReply,
    VoteRequest,
    WriteBase,
    WriteEntries,
)
from drivetrain.cluster.messages.resources import CancelRequest, RequestSlots

log = logging.getLogger("drivetrain.cluster")

_ELECTION: Final = (VoteRequest, VoteReply, LeaseRequest, LeaseReply, ReleaseLease)
_REPLICA: Final = (WriteEntries, WriteBase, ReadDigest, ReadEntries, Gossip)
_FOR_APPLICATIONS: Final = (
    Submit,
    GetApplications,
    GetApplication,
    Kill,
    Restart,
    RegisterAppMaster,
    AppMasterReport,
    RequestSlots,
    CancelRequest,
    Launched,
    LaunchFailed,
    ProcessExited,
)
_FOR_WORKERS: Final = (RegisterWorker, WorkerReport, GetWorkers)


class Master(GuardedActor):
    """One master; `store` and `leadership` are shared with its children."""

    def __init__(
        self,
        settings: MasterSettings,
        disk: Disk,
        store: ReplicaStore,
        votes: VoteStore,
        leadership: Leadership,
        wall_ms: Callable[[], int],
    ) -> None:
        self._settings: Final = settings
        self._disk: Final = disk
        self._store: Final = store
        self._votes: Final = votes
        self._leadership: Final = leadership
        self._wall_ms: Final = wall_ms
        self._term = 0
        self._registry: ActorRef | None = None
        self._actors: dict[str, ActorRef] = {}

    def pre_start(self) -> None:
        """Start the children that live as long as the process."""
        context, settings, leadership = self.context, self._settings, self._leadership
        self._replica = context.spawn(lambda: Replica(settings, self._store, leadership), "replica")
        self._code = context.spawn(lambda: CodeStore(settings, self._disk, self._store, leadership), "code")
        self._agreement = context.spawn(lambda: Agreement(settings, leadership), "agreement")
        self._election = context.spawn(
            lambda: ElectionActor(settings, self._votes, leadership, self._agreement), "election"
        )

    def act(self, message: Message) -> None:
        """Route one message."""
        match message:
            case LeadershipBegan(term):
                self._begin(term)
            case RegistryTakenOver():
                self._taken_over(message)
            case LeadershipEnded(term, _):
                if term == self._term:
                    self._end()
            case LeaderActorFailed(term, why):
                log.error("%s", why)
                self._election.tell(Resign(term, why))
            case StepDown(why):
                self._election.tell(Resign(self._leadership.election.term, why))
            case GetMasterList():
                self.context.forward(self._agreement)
            case GetLeader():
                self.context.reply(self._leader())
            case GetMasters():
                self.context.reply(self._masters())
            case Terminated():
                pass  # no actor is watched
            case _:
                self._route(message)

    def _route(self, message: Message) -> None:
        if isinstance(message, _ELECTION):
            self.context.forward(self._election)
        elif isinstance(message, _REPLICA):
            self.context.forward(self._replica)
        elif isinstance(message, ReplicateCode | GetCode):
            self.context.forward(self._code)
        elif isinstance(message, _FOR_APPLICATIONS):
            self._to_actor("applications")
        elif isinstance(message, _FOR_WORKERS):
            self._to_actor("workers")
        elif isinstance(message, PutCode):
            if self._is_leading:
                self.context.forward(self._code)
            else:
                self._refuse()
        else:
            self.context.unhandled(message)

    def _to_actor(self, name: str) -> None:
        if self._is_leading:
            self.context.forward(self._actors[name])
        else:
            self._refuse()

    # ---- terms

    @property
    def _is_leading(self) -> bool:
        """Whether the actors exist and may act."""
        return bool(self._actors) and self._leadership.leads(self._term)

    def _begin(self, term: int) -> None:
        self._end()
        self._term = term
        settings, leadership = self._settings, self._leadership
        self._registry = self.context.spawn(
            lambda: RegistryActor(settings, term, leadership, self._store, self._replica, self._election),
            f"registry-{term}",
        )

    def _taken_over(self, message: RegistryTakenOver) -> None:
        term, registry = message.term, self._registry
        if term != self._term or registry is None or self._actors or not self._leadership.leads(term):
            return
        settings, leadership, wall_ms, spawn = (
            self._settings,
            self._leadership,
            self._wall_ms,
            self.context.spawn,
        )
        scheduler = spawn(lambda: Scheduler(settings, term, leadership), f"scheduler-{term}")
        applications = spawn(
            lambda: AppManager(
                settings, term, leadership, message.values, wall_ms, scheduler, registry, self._code
            ),
            f"applications-{term}",
        )
        workers = spawn(
            lambda: WorkerManager(settings, term, leadership, wall_ms, scheduler, applications),
            f"workers-{term}",
        )
        self._actors = {"scheduler": scheduler, "applications": applications, "workers": workers}
        log.info("%s has taken over %d entries in term %d", settings.me, len(message.values), term)

    def _end(self) -> None:
        for actor in (*self._actors.values(), self._registry):
            if actor is not None:
                self.context.stop(actor)
        self._actors = {}
        self._registry = None

    # ---- answers

    def _leader(self) -> Leader:
        """The leader; this master only once it has actors."""
        leadership, me = self._leadership, self._settings.me
        term, address = leadership.election.term, leadership.election.leader
        if address == me:
            return Leader(term, me, self.context.me) if self._is_leading else Leader(term, None, None)
        return Leader(term, address, leadership.peers.get(address or ""))

    def _refuse(self) -> None:
        """Answer with the current leader; after a while without one, that there is no majority."""
        if self.context.sender is None:
            return
        now_ms = self._leadership.now_ms()
        leader = self._leader()
        silence_ms = now_ms - self._leadership.leader_seen_ms
        if leader.address is None and silence_ms >= self._settings.quorum_timeout_ms:
            self.context.reply(
                Failure(
                    "no-quorum",
                    f"no master has led for {silence_ms} ms: {self._settings.quorum} of "
                    f"{len(self._settings.masters)} are needed",
                    self._settings.me,
                    "start the missing masters; applications keep running meanwhile",
                )
            )
        else:
            self.context.reply(NotLeader(leader))

    def _masters(self) -> Masters:
        leadership, now_ms = self._leadership, self._leadership.now_ms()
        views = []
        for address in self._settings.masters:
            seen_ms = leadership.last_seen_ms.get(address)
            is_me = address == self._settings.me
            views.append(
                MasterView(
                    address,
                    self._is_leading if is_me else leadership.election.leader == address,
                    leadership.election.term,
                    0 if is_me else None if seen_ms is None else now_ms - seen_ms,
                )
            )
        return Masters(tuple(views))
