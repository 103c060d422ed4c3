"""Messages between the actors of one master, and the state that they share.

The election's actor writes `Leadership`; the others read it, and check it before they act for the leader.
"""

from __future__ import annotations

import asyncio
from typing import Final

from drivetrain.actor import ActorRef, Message
from drivetrain.actor.purgatory import loop_clock
from drivetrain.cluster.messages.applications import Submit
from drivetrain.cluster.messages.registration import HeldSlots
from drivetrain.core.cluster.election import Election
from drivetrain.errors import ConfigError


class Leadership:
    """Whether this master leads now, which master does, and how to reach the others."""

    def __init__(self, election: Election, loop: asyncio.AbstractEventLoop) -> None:
        self.election: Final = election
        self.now_ms: Final = loop_clock(loop)
        self.peers: Final[dict[str, ActorRef]] = {}
        """`/user/master` of each other master that was found, by address."""
        self.last_seen_ms: Final[dict[str, int]] = {}
        """When the last message of each other master arrived."""
        self.leader_seen_ms = self.now_ms()
        """When this master last knew of a leader."""
        self.refusal: ConfigError | None = None
        """The error for which this master has withdrawn: its list of masters differs from the others'."""
        self._started_ms: Final = self.now_ms()
        self._refused: Final = asyncio.Event()

    def leads(self, term: int) -> bool:
        """Whether this master may act as the leader of `term` at this moment."""
        return self.refusal is None and self.election.term == term and self.election.leads(self.now_ms())

    def age_ms(self) -> int:
        """This master's uptime in ms."""
        return self.now_ms() - self._started_ms

    def refuse(self, error: ConfigError) -> None:
        """Withdraw from the cluster because of `error`."""
        self.refusal = self.refusal or error
        self._refused.set()

    async def wait_refused(self) -> object:
        """Wait until this master withdraws; raises the error."""
        await self._refused.wait()
        assert self.refusal is not None
        raise self.refusal


class LeadershipBegan(Message, frozen=True, tag="dt.local.master.leadership-began"):
    """The election's actor to the master: it leads."""

    term: int


class LeadershipEnded(Message, frozen=True, tag="dt.local.master.leadership-ended"):
    """The election's actor to the master: it no longer leads."""

    term: int
    why: str


class LeaderActorFailed(Message, frozen=True, tag="dt.local.master.leader-actor-failed"):
    """An actor of the leader to the master: it has failed."""

    term: int
    why: str


class StepDown(Message, frozen=True, tag="dt.local.master.let-others-lead"):
    """From the process: it was asked to end."""

    why: str


class Resign(Message, frozen=True, tag="dt.local.master.resign"):
    """To the election's actor: the leader of `term` cannot write, or was asked to end."""

    term: int
    why: str


class ReportHigherTerm(Message, frozen=True, tag="dt.local.master.see-term"):
    """To the election's actor: another master's fence shows that it follows a leader of this term."""

    term: int


class RegistryTakenOver(Message, frozen=True, tag="dt.local.master.taken-over"):
    """The registry's actor to the master: `values` is the registry of a majority, and this term's base."""

    term: int
    values: dict[str, bytes]


class Put(Message, frozen=True, tag="dt.local.master.put"):
    """To the registry's actor: write these (None deletes); answered with `PutDone` by a majority's write."""

    number: int
    changes: dict[str, bytes | None]


class PutDone(Message, frozen=True, tag="dt.local.master.put-done"):
    """All puts up to this number are durable on a majority."""

    number: int


class Tick(Message, frozen=True, tag="dt.local.master.tick"):
    """A periodic timer."""


class WorkerUp(Message, frozen=True, tag="dt.local.master.worker-up"):
    """The worker manager to scheduler and applications: a worker has registered (again)."""

    worker_id: str
    name: str
    host: str
    slots: int
    worker: ActorRef
    held: tuple[HeldSlots, ...]
    leaves: bool = False


class WorkerReported(Message, frozen=True, tag="dt.local.master.worker-holds"):
    """The launches that a worker reports to hold, and whether it is about to end."""

    worker_id: str
    held: tuple[HeldSlots, ...]
    leaves: bool = False


class WorkerDown(Message, frozen=True, tag="dt.local.master.worker-down"):
    """A worker is gone."""

    worker_id: str
    why: str


class GetFreeSlots(Message, frozen=True, tag="dt.local.master.get-free-slots"):
    """Asks the scheduler for the free slots of all workers."""


class FreeSlots(Message, frozen=True, tag="dt.local.master.free-slots"):
    """Free slots by worker."""

    free: dict[str, int]


class ReleaseApplication(Message, frozen=True, tag="dt.local.master.release-application"):
    """To the scheduler: drop the application's waiting requests, or only those of epochs below
    `below_epoch`."""

    app_id: str
    below_epoch: int | None = None


class RequestExpired(Message, frozen=True, tag="dt.local.master.request-expired"):
    """The purgatory to the scheduler: a request has waited long enough."""

    request_id: str


class EnsureCode(Message, frozen=True, tag="dt.local.master.ensure-code"):
    """Asks the code store for an archive, which it gets from another master if necessary."""

    sha256: str


class EnsureCodeReply(Message, frozen=True, tag="dt.local.master.code-there"):
    """The answer to `EnsureCode`."""

    is_there: bool


class SubmissionCodeChecked(Message, frozen=True, tag="dt.local.master.code-checked"):
    """A submission, after the code store was asked for its code."""

    submit: Submit
    sender: ActorRef | None
    is_there: bool


class CodeReplicated(Message, frozen=True, tag="dt.local.master.code-replicated"):
    """Replicating an archive has ended: this many masters are known to have it."""

    sha256: str
    copies: int


class PeerFound(Message, frozen=True, tag="dt.local.master.peer-found"):
    """A lookup of another master has ended; None when it failed."""

    address: str
    master: ActorRef | None


class CompareLists(Message, frozen=True, tag="dt.local.master.compare-lists"):
    """The election's actor to `agreement`: a master was found, or (None) one has sent another list."""

    address: str
    master: ActorRef | None = None


class ListCompared(Message, frozen=True, tag="dt.local.master.list-compared"):
    """Another master's list and uptime; None when it did not answer."""

    address: str
    master: ActorRef | None
    masters: tuple[str, ...]
    age_ms: int
