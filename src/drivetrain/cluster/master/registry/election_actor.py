"""The election's actor: performs the effects of `core.cluster.election`, and finds the other masters.

Design: the vote is a file, replaced atomically before any message that depends on it is sent; when that
fails, those messages are dropped and the core tries again later. Messages of masters that have a different
list, or are not on the list, are dropped, and `agreement` decides which of the two masters has to end.

Invariants: those of `core.cluster.election`.

Called by `/user/master`, which forwards the messages of the other masters.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from drivetrain.actor import ActorRef, Message
from drivetrain.actor.disk import Disk
from drivetrain.cluster.guarded import GuardedActor
from drivetrain.cluster.master.master_messages import (
    CompareLists,
    Leadership,
    LeadershipBegan,
    LeadershipEnded,
    PeerFound,
    ReportHigherTerm,
    Resign,
    Tick,
)
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.master.registry.plausible_terms import is_plausible
from drivetrain.cluster.messages.replication import (
    LeaseReply,
    LeaseRequest,
    ReleaseLease,
    VoteReply,
    VoteRequest,
)
from drivetrain.core.cluster import election_events as core
from drivetrain.core.cluster.map_log import Voted, decode, encode, last_vote
from drivetrain.errors import DrivetrainError

log = logging.getLogger("drivetrain.cluster")

VOTE: Final = "vote"
_NEW_VOTE: Final = "vote.new"


class VoteStore:
    """Term and vote on a disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk: Final = disk

    async def load(self) -> Voted:
        """Read the last vote; raises `CorruptLogError`, OSError."""
        records, _ = decode(await self._disk.read(VOTE) or b"", VOTE)
        return last_vote(records, VOTE) or Voted(0, None)

    async def keep(self, vote: Voted) -> None:
        """Make a vote durable; raises `DiskFullError`, OSError."""
        await self._disk.write(_NEW_VOTE, encode(vote))
        await self._disk.sync(_NEW_VOTE)
        await self._disk.replace(_NEW_VOTE, VOTE)


class ElectionActor(GuardedActor):
    """Drives the election of one master."""

    def __init__(
        self, settings: MasterSettings, store: VoteStore, leadership: Leadership, agreement: ActorRef
    ) -> None:
        self._settings = settings
        self._store = store
        self._leadership = leadership
        self._agreement = agreement
        self._looked_ms: dict[str, int] = {}
        self._complaints: set[str] = set()

    def pre_start(self) -> None:
        """Start the timer."""
        beat_ms = max(1, self._settings.lease_ms // 16)
        self.context.timers.start_periodic("tick", Tick(), interval_ms=beat_ms, initial_delay_ms=0)

    async def act(self, message: Message) -> None:
        """Turn a message into an event, and perform its effects."""
        if self._leadership.refusal is not None:
            return
        match message:
            case PeerFound(address, master):
                self._found(address, master)
                return
            case Tick():
                self._look_for_peers()
                event: core.ElectionEvent = core.TimePassed()
            case ReportHigherTerm(term):
                event = core.TermSeen(core.Term(term))
            case Resign(term, why):
                event = core.Resigned(core.Term(term), why)
            case VoteRequest() | VoteReply() | LeaseRequest() | LeaseReply() | ReleaseLease():
                if not self._is_listed(message) or not is_plausible(message, self._leadership.election.term):
                    return
                event = _event(message)
            case _:
                self.context.unhandled(message)
                return
        await self._step(event)

    async def _step(self, event: core.ElectionEvent) -> None:
        election = self._leadership.election
        effects = deque(election.step(event, self._leadership.now_ms()))
        if election.leader is not None:
            self._leadership.leader_seen_ms = self._leadership.now_ms()
        while effects:
            effect = effects.popleft()
            if not isinstance(effect, core.PersistVote):
                self._perform(effect)
                continue
            try:
                await self._store.keep(Voted(effect.term, effect.voted_for))
            except (DrivetrainError, OSError) as error:
                self._complain("disk", f"this master cannot vote: {error}")
                # Drop everything that depends on the vote, but not the end of leading.
                rest = [e for e in effects if isinstance(e, core.StopLeading | core.FollowLeader)]
                for kept in rest:
                    self._perform(kept)
                return
            self._complaints.discard("disk")
            persisted = core.VotePersisted(effect.term, effect.voted_for)
            effects.extend(election.step(persisted, self._leadership.now_ms()))

    def _perform(self, effect: core.ElectionEffect) -> None:
        me, list_id = self._settings.me, self._settings.list_id
        master = self.context.parent
        match effect:
            case core.RequestVote(term, is_trial):
                self._send_to_all(VoteRequest(me, list_id, term, is_trial))
            case core.AnswerVote(_, term, known_term, is_trial, granted):
                self._answer(VoteReply(me, list_id, term, known_term, is_trial, granted))
            case core.RequestLease(term, sent_ms):
                self._send_to_all(LeaseRequest(me, list_id, term, sent_ms))
            case core.ReleaseLease(term):
                self._send_to_all(ReleaseLease(me, list_id, term))
            case core.AnswerLease(_, term, known_term, sent_ms, granted):
                self._answer(LeaseReply(me, list_id, term, known_term, sent_ms, granted))
            case core.BeginToLead(term):
                log.info("%s leads in term %d", me, term)
                master.tell(LeadershipBegan(term))
            case core.StopLeading(term, why):
                log.info("%s no longer leads in term %d: %s", me, term, why)
                master.tell(LeadershipEnded(term, why))
            case core.FollowLeader(term, leader):
                if leader is not None and leader != me:
                    log.info("%s follows %s in term %d", me, leader, term)

    def _answer(self, message: Message) -> None:
        if self.context.sender is not None:
            self.context.reply(message)

    # ---- other masters

    def _send_to_all(self, message: Message) -> None:
        for peer in self._leadership.peers.values():
            peer.tell(message, self.context.me)

    def _is_listed(self, message: VoteRequest | VoteReply | LeaseRequest | LeaseReply | ReleaseLease) -> bool:
        address = message.sender
        if message.list_id != self._settings.list_id or address not in self._settings.peers:
            self._agreement.tell(CompareLists(address))
            return False
        self._leadership.last_seen_ms[address] = self._leadership.now_ms()
        sender, known = self.context.sender, self._leadership.peers.get(address)
        if sender is not None and known is not None and sender.path.address != known.path.address:
            # That master was restarted: the reference to it is outdated.
            del self._leadership.peers[address]
            self._looked_ms.pop(address, None)
            self._look_for_peers()
        return True

    def _look_for_peers(self) -> None:
        now_ms, lease_ms = self._leadership.now_ms(), self._settings.lease_ms
        for address in self._settings.peers:
            is_silent = now_ms - self._leadership.last_seen_ms.get(address, 0) > lease_ms
            is_known = address in self._leadership.peers
            if (is_known and not is_silent) or now_ms - self._looked_ms.get(
                address, -lease_ms
            ) < lease_ms // 4:
                continue
            self._looked_ms[address] = now_ms
            path = f"drivetrain://master@{address}/user/master"
            self.context.pipe_to_self(
                self.context.system.lookup(path, timeout_ms=lease_ms),
                lambda found, address=address: PeerFound(address, found),  # type: ignore[misc]
                lambda _, address=address: PeerFound(address, None),  # type: ignore[misc]
            )

    def _found(self, address: str, master: ActorRef | None) -> None:
        if master is not None:
            self._leadership.peers[address] = master
            self._agreement.tell(CompareLists(address, master))

    def _complain(self, about: str, what: str) -> None:
        if about not in self._complaints:
            self._complaints.add(about)
            log.error("%s", what)


def _event(message: VoteRequest | VoteReply | LeaseRequest | LeaseReply | ReleaseLease) -> core.ElectionEvent:
    who, term = core.MasterAddress(message.sender), core.Term(message.term)
    match message:
        case VoteRequest():
            return core.VoteRequested(who, term, message.is_trial)
        case VoteReply():
            known = core.Term(message.known_term)
            return core.VoteAnswered(who, term, known, message.is_trial, message.granted)
        case LeaseRequest():
            return core.LeaseRequested(who, term, message.sent_ms)
        case ReleaseLease():
            return core.LeaseReleased(who, term)
        case LeaseReply():
            known = core.Term(message.known_term)
            return core.LeaseAnswered(who, term, known, message.sent_ms, message.granted)
