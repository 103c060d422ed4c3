"""Which messages the processes of a cluster accept from each other: a table, by roles.

Problem: a process with any key of the cluster can reach the actors of others. A client must not report for a
worker, an executor must not end another application, and a message in the name of a third process, or one
that cannot be answered, must not harm another process.

Design: a function of the peer's proven name and the message decides before each message arrives
(`drivetrain.actor.remote.inbound_message`). Four rules:

1. A role accepts from another the messages in `TAKEN`, and the kernel's own messages. Applications and their
   clients may have messages of their own: all whose tags are not the cluster's.
2. A request that expects an answer comes with a sender.
3. A reference by which the peer wants to be reached is one of the peer's own, and so is the sender.
   Exceptions are messages that an application master may pass on to a worker for a client, and applications'
   own messages.
4. A process of an application speaks for its own application and epoch only, an executor for its own launch.

The receiver itself checks what only it can know: whether the epoch is current, whether the named thing exists
and belongs to the application.

Invariant: every message class of `drivetrain.cluster.messages` is in `TAKEN`, so that a new one is refused
until someone has decided about it (tested).

Called by the remote layer, for every message from another process; made by `guard_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from drivetrain.actor import ActorRef, Failure, Message, Terminated
from drivetrain.actor.kernel_messages import Identified, Identify, Unwatch, Watch
from drivetrain.actor.message import tag_of
from drivetrain.actor.remote.inbound_message import Guard, InboundMessage
from drivetrain.cluster.access.system_names import ProcessName, Role, read_name, request_prefix
from drivetrain.cluster.messages import (
    applications,
    changing,
    checkpoints,
    code,
    executing,
    flow,
    following,
    launching,
    leadership,
    registration,
    replication,
    resources,
)
from drivetrain.errors import InternalError

MESSAGE_MODULES: Final = (
    applications,
    changing,
    checkpoints,
    code,
    executing,
    flow,
    following,
    launching,
    leadership,
    registration,
    replication,
    resources,
)

KERNEL: Final[frozenset[type[Message]]] = frozenset(
    {Identify, Identified, Watch, Unwatch, Terminated, Failure}
)
_OURS: Final = ("cluster.", "masters.", "dt.")

_LEADER: Final[frozenset[type[Message]]] = frozenset({leadership.Leader, leadership.NotLeader})
_OF_CLIENTS: Final[frozenset[type[Message]]] = frozenset(
    {
        leadership.GetLeader,
        applications.Submit,
        applications.GetApplications,
        applications.GetApplication,
        applications.Kill,
        applications.Restart,
        applications.GetWorkers,
        applications.GetMasters,
        code.PutCode,
        code.GetCode,
    }
)
_ANSWERS_TO_CLIENTS: Final[frozenset[type[Message]]] = frozenset(
    {
        applications.Accepted,
        applications.Applications,
        applications.FoundApplication,
        applications.Workers,
        applications.Masters,
        code.CodeStored,
        code.CodeChunk,
        *_LEADER,
    }
)
_OF_WORKERS: Final[frozenset[type[Message]]] = frozenset(
    {
        leadership.GetLeader,
        code.GetCode,
        registration.RegisterWorker,
        registration.WorkerReport,
        launching.Launched,
        launching.LaunchFailed,
        launching.ProcessExited,
    }
)
_TO_WORKERS: Final[frozenset[type[Message]]] = frozenset(
    {
        code.CodeChunk,
        registration.WorkerRegistered,
        registration.WorkerRefused,
        launching.Launch,
        launching.StopProcess,
        launching.EndEpoch,
        launching.ReadLog,
        *_LEADER,
    }
)
_OF_APP_MASTERS: Final[frozenset[type[Message]]] = frozenset(
    {
        leadership.GetLeader,
        registration.RegisterAppMaster,
        registration.AppMasterReport,
        resources.RequestSlots,
        resources.CancelRequest,
        applications.GetWorkers,
        applications.Restart,
        code.GetCode,
    }
)
_TO_APP_MASTERS: Final[frozenset[type[Message]]] = frozenset(
    {
        registration.AppMasterRegistered,
        registration.ReportAccepted,
        resources.SlotsAllocated,
        resources.SlotsRefused,
        following.StopApplication,
        code.CodeChunk,
        applications.FoundApplication,
        applications.Workers,
        *_LEADER,
    }
)
_OF_EXECUTORS: Final[frozenset[type[Message]]] = frozenset(
    {
        executing.RegisterExecutor,
        executing.Prepared,
        executing.PrepareFailed,
        executing.PrepareDeferred,
        executing.FragmentChanged,
        executing.ExecutorReport,
        executing.Concluded,
        following.ThreadStacks,
        changing.VersionChecked,
        changing.ScalingChecked,
        changing.VersionReports,
        checkpoints.CheckpointCommand,
        checkpoints.CheckpointAnswered,
        flow.RelayedFlowMessage,
    }
)
_TO_EXECUTORS: Final[frozenset[type[Message]]] = frozenset(
    {
        executing.ExecutorRegistered,
        executing.Prepare,
        executing.Deploy,
        executing.CancelFragment,
        executing.FragmentChangedReply,
        executing.Conclude,
        executing.EndExecutor,
        following.GetThreads,
        changing.CheckVersion,
        changing.CheckScaling,
        changing.VersionsChanged,
        changing.LeavePermitted,
        checkpoints.CheckpointCommand,
        checkpoints.FragmentMoved,
        flow.RelayedFlowMessage,
    }
)
_OF_MASTERS: Final[frozenset[type[Message]]] = frozenset(
    {
        leadership.GetLeader,
        leadership.Leader,
        leadership.NotLeader,
        code.GetCode,
        code.CodeChunk,
        code.CodeStored,
        replication.GetMasterList,
        replication.MasterList,
        replication.VoteRequest,
        replication.VoteReply,
        replication.LeaseRequest,
        replication.LeaseReply,
        replication.ReleaseLease,
        replication.ReadDigest,
        replication.Digest,
        replication.ReadEntries,
        replication.Entries,
        replication.WriteEntries,
        replication.WriteBase,
        replication.EntriesWritten,
        replication.WriteFailed,
        replication.TermRefused,
        replication.Gossip,
        replication.GossipDigest,
        replication.ReplicateCode,
    }
)

TAKEN: Final[Mapping[tuple[Role, Role], frozenset[type[Message]]]] = {
    # (receiver, sender)
    (Role.MASTER, Role.MASTER): _OF_MASTERS,
    (Role.MASTER, Role.CLIENT): _OF_CLIENTS,
    (Role.MASTER, Role.WORKER): _OF_WORKERS,
    (Role.MASTER, Role.APP_MASTER): _OF_APP_MASTERS,
    (Role.CLIENT, Role.MASTER): _ANSWERS_TO_CLIENTS,
    (Role.CLIENT, Role.WORKER): frozenset({launching.LogChunk}),
    (Role.CLIENT, Role.APP_MASTER): frozenset(
        {
            following.Status,
            following.HistoryReport,
            following.ThreadStacks,
            checkpoints.SavepointMade,
            changing.ChangeStatus,
            changing.Versions,
            changing.ConfigurationChanged,
        }
    ),
    (Role.WORKER, Role.MASTER): _TO_WORKERS,
    (Role.WORKER, Role.CLIENT): frozenset({launching.ReadLog}),
    (Role.WORKER, Role.APP_MASTER): frozenset({launching.Launch, launching.StopProcess, launching.ReadLog}),
    (Role.APP_MASTER, Role.MASTER): _TO_APP_MASTERS,
    (Role.APP_MASTER, Role.WORKER): frozenset(
        {launching.Launched, launching.LaunchFailed, launching.ProcessExited}
    ),
    (Role.APP_MASTER, Role.CLIENT): frozenset(
        {
            following.GetStatus,
            following.GetHistory,
            following.GetThreads,
            following.Follow,
            following.Unfollow,
            checkpoints.MakeSavepoint,
            changing.ChangeGraph,
            changing.ScaleFragment,
            changing.GiveUpChange,
            changing.ChangeConfiguration,
            changing.GetChange,
            changing.GetVersions,
            launching.ReadLog,
        }
    ),
    (Role.APP_MASTER, Role.EXECUTOR): _OF_EXECUTORS,
    (Role.EXECUTOR, Role.APP_MASTER): _TO_EXECUTORS,
    (Role.EXECUTOR, Role.EXECUTOR): frozenset(),
}

OF_THEIR_OWN: Final = frozenset(
    {
        (Role.APP_MASTER, Role.EXECUTOR),
        (Role.EXECUTOR, Role.APP_MASTER),
        (Role.EXECUTOR, Role.EXECUTOR),
        (Role.APP_MASTER, Role.CLIENT),
        (Role.CLIENT, Role.APP_MASTER),
    }
)
"""Pairs (receiver, sender) of roles that exchange an application's own messages."""

NEEDS_SENDER: Final[frozenset[type[Message]]] = frozenset(
    {
        *_OF_CLIENTS,
        code.GetCode,
        registration.RegisterWorker,
        registration.RegisterAppMaster,
        registration.AppMasterReport,
        replication.GetMasterList,
        replication.VoteRequest,
        replication.LeaseRequest,
        replication.ReadDigest,
        replication.ReadEntries,
        replication.WriteEntries,
        replication.WriteBase,
        replication.Gossip,
        replication.GossipDigest,
        replication.ReplicateCode,
        following.GetStatus,
        following.GetHistory,
        following.GetThreads,
        checkpoints.MakeSavepoint,
        changing.ChangeGraph,
        changing.ScaleFragment,
        changing.GiveUpChange,
        changing.ChangeConfiguration,
        changing.GetChange,
        changing.GetVersions,
        changing.CheckVersion,
        changing.CheckScaling,
        launching.ReadLog,
        executing.RegisterExecutor,
        executing.FragmentChanged,
        executing.Prepare,
        executing.Conclude,
    }
)

_OWN_REFERENCE: Final[Mapping[type[Message], str]] = {
    registration.RegisterWorker: "worker",
    registration.RegisterAppMaster: "app_master",
    executing.RegisterExecutor: "executor",
    resources.RequestSlots: "requester",
    launching.Launch: "owner",
    following.Follow: "follower",
    following.Unfollow: "follower",
}
"""The field with the peer's own reference, by message class."""

_PASSED_ON: Final = (launching.ReadLog,)

_OF_A_LAUNCH: Final = (
    executing.RegisterExecutor,
    executing.FragmentChanged,
    executing.ExecutorReport,
    changing.VersionReports,
)


def guard_of(me: str) -> Guard:
    """The guard of the process whose system is named `me`; raises InternalError for an unknown name."""
    name = read_name(me)
    if name is None:
        raise InternalError("not the name of a cluster's process", where=me)
    role = name.role

    def judge(arrival: InboundMessage) -> str | None:
        peer = _name_of(arrival.peer.system)
        if peer is None:
            return f"{arrival.peer.system[:120]} is no process of a cluster"
        return _role_refusal(role, peer, arrival.message) or _refusal(peer, arrival)

    return judge


_name_of: Final = lru_cache(maxsize=1024)(read_name)


def _role_refusal(me: Role, peer: ProcessName, message: Message) -> str | None:
    """Why rule 1 refuses a message of that peer; None if it does not."""
    kind, pair = type(message), (me, peer.role)
    if kind in KERNEL or kind in TAKEN.get(pair, ()):
        return None
    if pair in OF_THEIR_OWN and not tag_of(kind).startswith(_OURS):
        return None
    return f"{me.value} takes no {kind.__name__} from {peer.role.value}"


def _refusal(peer: ProcessName, arrival: InboundMessage) -> str | None:
    """Why one of the rules 2 to 4 refuses a message; None if none does."""
    message = arrival.message
    kind = type(message)
    if arrival.sender is None and kind in NEEDS_SENDER:
        return f"{kind.__name__} came without a sender"
    is_foreign = arrival.sender is not None and arrival.sender.address != arrival.peer
    if is_foreign and kind not in _PASSED_ON and tag_of(kind).startswith(_OURS):
        return f"the answer to {kind.__name__} is to go to {arrival.sender}"
    reference = _OWN_REFERENCE.get(kind)
    if reference is not None:
        actor: ActorRef = getattr(message, reference)
        if actor.path.address != arrival.peer:
            return f"{kind.__name__} speaks for {actor.path}"
    return None if peer.app_id is None else _application_refusal(peer, message)


def _application_refusal(peer: ProcessName, message: Message) -> str | None:
    """Why rule 4 refuses a message of an application's process; None if it does not."""
    assert peer.app_id is not None
    assert peer.epoch is not None
    kind = type(message)
    app_id = message.app if isinstance(message, applications.Restart) else None
    app_id = app_id or getattr(message, "app_id", peer.app_id)
    epoch = getattr(message, "epoch", peer.epoch)
    if kind.__module__.startswith("drivetrain.") and (app_id, epoch) != (peer.app_id, peer.epoch):
        return f"{kind.__name__} is about {str(app_id)[:120]}, epoch {epoch}"
    request = getattr(message, "launch_id", None) or getattr(message, "request_id", None)
    if request is not None and not str(request).startswith(f"{request_prefix(peer.app_id, peer.epoch)}-"):
        return f"{kind.__name__} names {str(request)[:120]}, which is not of {peer.app_id}"
    if isinstance(message, applications.Restart) and message.replay_from_ms is not None:
        return "applications do not replay their messages by themselves"
    if isinstance(message, launching.Launch) and message.kind is not launching.ProcessKind.EXECUTOR:
        return "applications launch executors only"
    if isinstance(message, _OF_A_LAUNCH) and not peer.is_launch(message.executor_id):
        return f"{kind.__name__} is of another executor"
    return None
