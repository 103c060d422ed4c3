"""What the actors within one master say to each other, and what they share.

`Standing` is written by the election's actor and read by all: who wants to act as leader asks it first.
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


class Standing:
    """Whether this master leads now, who does, and how to reach the others."""

    def __init__(self, election: Election, loop: asyncio.AbstractEventLoop) -> None:
        self.election: Final = election
        self.now_ms: Final = loop_clock(loop)
        self.peers: Final[dict[str, ActorRef]] = {}
        """`/user/master` of each other master that was found, by address."""
        self.last_seen_ms: Final[dict[str, int]] = {}
        """When each other master was last heard."""
        self.leader_seen_ms = self.now_ms()
        """When this master last knew of a leader."""
        self.refusal: ConfigError | None = None
        """Why this master takes no part any more: its list of masters is not that of the others."""
        self._started_ms: Final = self.now_ms()
        self._refused: Final = asyncio.Event()

    def leads(self, term: int) -> bool:
        """Whether this master may act as the leader of `term` at this moment."""
        return self.refusal is None and self.election.term == term and self.election.leads(self.now_ms())

    def age_ms(self) -> int:
        """How long this master has been running."""
        return self.now_ms() - self._started_ms

    def refuse(self, error: ConfigError) -> None:
        """Take no part any more, because of `error`."""
        self.refusal = self.refusal or error
        self._refused.set()

    async def wait_refused(self) -> object:
        """Wait until this master takes no part any more; raises why."""
        await self._refused.wait()
        assert self.refusal is not None
        raise self.refusal


class LeadershipBegan(Message, frozen=True, tag="dt.local.master.leadership-began"):
    """The election's actor to the master: it leads."""

    term: int


class LeadershipEnded(Message, frozen=True, tag="dt.local.master.leadership-ended"):
    """The election's actor to the master: it does not lead any more."""

    term: int
    why: str


class OfficeFailed(Message, frozen=True, tag="dt.local.master.office-failed"):
    """An officer of the leader to the master: it has failed."""

    term: int
    why: str


class Resign(Message, frozen=True, tag="dt.local.master.resign"):
    """To the election's actor: the leader of `term` cannot write."""

    term: int
    why: str


class SeeTerm(Message, frozen=True, tag="dt.local.master.see-term"):
    """To the election's actor: a master follows a leader of this term, as its fence says."""

    term: int


class TakenOver(Message, frozen=True, tag="dt.local.master.taken-over"):
    """The registry's actor to the master: what a majority knows is `values`, and is this term's base."""

    term: int
    values: dict[str, bytes]


class Put(Message, frozen=True, tag="dt.local.master.put"):
    """To the registry's actor: write these (None deletes); answered with `PutDone` once a majority has it."""

    number: int
    changes: dict[str, bytes | None]


class PutDone(Message, frozen=True, tag="dt.local.master.put-done"):
    """All puts up to this number are durable on a majority."""

    number: int


class Tick(Message, frozen=True, tag="dt.local.master.tick"):
    """A timer's beat."""


class WorkerUp(Message, frozen=True, tag="dt.local.master.worker-up"):
    """The worker manager to scheduler and applications: a worker has registered (again)."""

    worker_id: str
    name: str
    host: str
    slots: int
    worker: ActorRef
    held: tuple[HeldSlots, ...]


class WorkerHolds(Message, frozen=True, tag="dt.local.master.worker-holds"):
    """What a worker says it holds."""

    worker_id: str
    held: tuple[HeldSlots, ...]


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
    """To the scheduler: forget what the application waits for, or only what epochs below one do."""

    app_id: str
    below_epoch: int | None = None


class RequestExpired(Message, frozen=True, tag="dt.local.master.request-expired"):
    """The purgatory to the scheduler: a request has waited long enough."""

    request_id: str


class EnsureCode(Message, frozen=True, tag="dt.local.master.ensure-code"):
    """Asks the code store whether an archive is here, getting it from another master if need be."""

    sha256: str


class CodeThere(Message, frozen=True, tag="dt.local.master.code-there"):
    """The answer."""

    is_there: bool


class CodeChecked(Message, frozen=True, tag="dt.local.master.code-checked"):
    """A submission whose code was looked for."""

    submit: Submit
    sender: ActorRef | None
    is_there: bool


class CodeReplicated(Message, frozen=True, tag="dt.local.master.code-replicated"):
    """Moving an archive has ended: so many masters are known to have it."""

    sha256: str
    copies: int


class PeerFound(Message, frozen=True, tag="dt.local.master.peer-found"):
    """A look-up of another master has ended; None when it was in vain."""

    address: str
    master: ActorRef | None


class CompareLists(Message, frozen=True, tag="dt.local.master.compare-lists"):
    """The election's actor to `agreement`: a master was found, or speaks with another list (then None)."""

    address: str
    master: ActorRef | None = None


class ListCompared(Message, frozen=True, tag="dt.local.master.list-compared"):
    """What another master says its list is, and how long it has been running; None when it did not answer."""

    address: str
    master: ActorRef | None
    masters: tuple[str, ...]
    age_ms: int
