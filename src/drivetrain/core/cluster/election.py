"""Leader election among a static list of masters: votes by term, and leases.

Problem. At any moment at most one master may act as leader, even when the network is cut, messages arrive
late or twice, processes crash and return, and a process freezes and later continues as if nothing had
happened.

Design. Terms are numbered; a master votes once per term, and its term and vote are durable before it
announces them. A master with the votes of a majority is elected, but leads only while it holds a *lease*: it
requests one from all masters again and again, and each that agrees promises to vote for nobody else for
`lease_ms` by its own clock. The leader counts from when it *sent* the request, so its lease ends before the
promises do; it gives up `DRIFT_SHARE` of it for clocks that run at different speeds. Before a master stands
for election it asks whether it would get the votes (a *trial*), so that one that was cut off does not return
with a higher term and depose a working leader. A leader that resigns releases the others from their promises,
since it needs the votes of a new term to lead again.

Invariants:
1. The term never decreases; a vote, once given in a term, never changes.
2. Nothing that asserts a term or a vote is sent before it is durable (`PersistVote` comes first in the
   effects, and a master's own vote counts only once `VotePersisted` has come).
3. A leader was voted for by a majority in its term, so a term has one leader at most.
4. `leads(now)` is true only while a majority is bound by promises to this leader: two masters never lead at
   the same time, if clocks run equally fast up to `DRIFT_SHARE`.
5. No vote, and no lease for another, is given while a promise is live; after a restart no vote is given for
   a full lease, as the promises before the restart are unknown.

Called by `drivetrain.cluster.master.registry.election_actor`, which performs the effects in order; if
persisting fails it drops the rest, and the core tries again.
Source: Raft (Ongaro, 2014), votes and the trial (PreVote); leases as in "Leases" (Gray, Cheriton, 1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from drivetrain.core.cluster.election_events import (
    AnswerLease,
    AnswerVote,
    BeginToLead,
    ElectionEffect,
    ElectionEvent,
    FollowLeader,
    LeaseAnswered,
    LeaseReleased,
    LeaseRequested,
    MasterAddress,
    PersistVote,
    ReleaseLease,
    RequestLease,
    RequestVote,
    Resigned,
    StopLeading,
    Term,
    TermSeen,
    TimePassed,
    VoteAnswered,
    VotePersisted,
    VoteRequested,
)
from drivetrain.core.liveness.supervision import RandomSource
from drivetrain.errors import ConfigError, InternalError

DRIFT_SHARE: Final = 10
"""A leader ends its lease one part in this many before the others' promises end."""
RENEWALS_PER_LEASE: Final = 4


class Role(Enum):
    """The role of a master in its term."""

    FOLLOWER = "follower"
    TRYING = "trying"  # asks whether it would be elected
    CANDIDATE = "candidate"
    LEADER = "leader"  # elected; see `leads` for whether it may act


class Election:
    """The election as one master, `me`, sees it; time is any clock in ms that does not go back.

    `masters` is the static list. `term` and `voted_for` are the persisted values; `now_ms` is when the
    process started. Raises `ConfigError` when the list does not contain `me`, or contains one twice.
    """

    def __init__(
        self,
        me: MasterAddress,
        masters: Sequence[MasterAddress],
        *,
        lease_ms: int,
        random: RandomSource,
        now_ms: int,
        term: Term = Term(0),
        voted_for: MasterAddress | None = None,
    ) -> None:
        if me not in masters or len(set(masters)) != len(masters):
            raise ConfigError(
                "the list of masters cannot be used",
                expected=f"each master once, {me} among them",
                got=", ".join(masters),
            )
        if lease_ms < DRIFT_SHARE:
            raise ConfigError(
                "the lease is too short", expected=f"at least {DRIFT_SHARE} ms", got=f"{lease_ms}"
            )
        self.me: Final = me
        self.masters: Final = tuple(masters)
        self.quorum: Final = len(masters) // 2 + 1
        self.lease_ms: Final = lease_ms
        self._random: Final = random
        self._now_ms = now_ms
        self._role = Role.FOLLOWER
        self._term = term
        self._voted_for = voted_for
        self._durable = (term, voted_for)
        self._leader: MasterAddress | None = None
        self._promised_to: MasterAddress | None = None
        # Invariant 5; at the very first start nothing was promised, nor ever if there are no other masters.
        is_free = (term == 0 and voted_for is None) or len(masters) == 1
        self._promised_until_ms = now_ms if is_free else now_ms + lease_ms
        self._stand_at_ms = self._promised_until_ms + self._delay_ms()
        self._ayes: set[MasterAddress] = set()
        self._agreed_ms: dict[MasterAddress, int] = {}
        self._renew_at_ms = now_ms
        self._is_leading = False

    # ---- state

    @property
    def role(self) -> Role:
        """This master's role."""
        return self._role

    @property
    def term(self) -> Term:
        """The newest term known."""
        return self._term

    @property
    def leader(self) -> MasterAddress | None:
        """The leader, as far as this master knows; itself only once it has begun to lead."""
        return self._leader

    @property
    def lease_until_ms(self) -> int:
        """The time until which (exclusively) this master may lead without further answers; 0 for never."""
        if self._role is not Role.LEADER or len(self._agreed_ms) < self.quorum:
            return 0
        sent_ms = sorted(self._agreed_ms.values(), reverse=True)[self.quorum - 1]
        return sent_ms + self.lease_ms - self.lease_ms // DRIFT_SHARE

    def leads(self, now_ms: int) -> bool:
        """Whether this master may act as leader now; check before every action."""
        return self._is_leading and now_ms < self.lease_until_ms

    # ---- events

    def step(self, event: ElectionEvent, now_ms: int) -> tuple[ElectionEffect, ...]:
        """Handle an event; returns the effects, in order. Raises `InternalError` if time went back, or for
        an event in the name of a master that is not on the list; then nothing changed."""
        if now_ms < self._now_ms:
            raise InternalError(f"an election event at {now_ms} ms after one at {self._now_ms} ms")
        who = _who(event)
        if who is not None and (who not in self.masters or who == self.me):
            raise InternalError(f"an election event in the name of {who}", where=self.me)
        self._now_ms = now_ms
        effects: list[ElectionEffect] = []
        self._give_up_what_ended(effects)
        match event:
            case TimePassed():
                self._time_passed(effects)
            case Resigned() | TermSeen():
                self._let_others(event, effects)
            case VotePersisted():
                self._persisted(event, effects)
            case VoteRequested():
                self._vote_requested(event, effects)
            case VoteAnswered():
                self._vote_answered(event, effects)
            case LeaseRequested():
                self._lease_requested(event, effects)
            case LeaseAnswered():
                self._lease_answered(event, effects)
            case LeaseReleased():
                self._lease_released(event, effects)
        return tuple(effects)

    def check(self) -> None:
        """Verify the invariants that one master can see; raise `InternalError` naming the first broken."""
        if self._durable[0] > self._term:
            raise InternalError(f"invariant 1: term {self._term} after {self._durable[0]} was persisted")
        if self._durable[0] == self._term and self._durable[1] not in (None, self._voted_for):
            raise InternalError(f"invariant 1: the vote for {self._durable[1]} became {self._voted_for}")
        if self._role in (Role.LEADER, Role.CANDIDATE) and self._voted_for != self.me:
            raise InternalError(f"invariant 3: {self._role.value} without its own vote")
        if self._role is Role.LEADER and (
            len(self._ayes) < self.quorum or self._durable != (self._term, self.me)
        ):
            raise InternalError("invariant 3: leader without a majority of durable votes")
        if self._is_leading and self._role is not Role.LEADER:
            raise InternalError("invariant 4: leads without being elected")

    # ---- time

    def _give_up_what_ended(self, effects: list[ElectionEffect]) -> None:
        """Runs first: a lease that ran out between two events is over, whatever the next event is."""
        if self._is_leading and self._now_ms >= self.lease_until_ms:
            self._fall_back(effects, "its lease ran out without a majority that renewed it")
        if self._leader is not None and self._leader != self.me and self._now_ms >= self._promised_until_ms:
            self._set_leader(None, effects)

    def _time_passed(self, effects: list[ElectionEffect]) -> None:
        if self._role is Role.LEADER:
            if not self._is_leading and self._now_ms >= self._stand_at_ms:
                self._fall_back(effects, "no majority granted the lease")
            elif self._now_ms >= self._renew_at_ms:
                self._request_lease(effects)
        elif self._now_ms >= self._stand_at_ms and self._now_ms >= self._promised_until_ms:
            self._try(effects)

    def _try(self, effects: list[ElectionEffect]) -> None:
        self._role = Role.TRYING
        self._ayes = {self.me}
        self._stand_at_ms = self._now_ms + self._round_ms()
        effects.append(RequestVote(Term(self._term + 1), is_trial=True))
        self._tally(effects)

    def _stand(self, effects: list[ElectionEffect]) -> None:
        self._role = Role.CANDIDATE
        self._term = Term(self._term + 1)
        self._voted_for = self.me
        self._ayes = set()
        self._stand_at_ms = self._now_ms + self._round_ms()
        effects.append(PersistVote(self._term, self.me))
        effects.append(RequestVote(self._term, is_trial=False))

    def _tally(self, effects: list[ElectionEffect]) -> None:
        if len(self._ayes) < self.quorum:
            return
        if self._role is Role.TRYING:
            self._stand(effects)
        elif self._role is Role.CANDIDATE and self._durable == (self._term, self.me):
            self._role = Role.LEADER
            self._agreed_ms = {}
            # Until then it may try to get the lease that makes it lead.
            self._stand_at_ms = self._now_ms + self.lease_ms
            self._request_lease(effects)

    def _request_lease(self, effects: list[ElectionEffect]) -> None:
        self._renew_at_ms = self._now_ms + self.lease_ms // RENEWALS_PER_LEASE
        # Its own promise: while it leads, or may become leader, it votes for nobody else.
        self._promise(self.me)
        self._agreed_ms[self.me] = self._now_ms
        effects.append(RequestLease(self._term, self._now_ms))
        self._lead_if_agreed(effects)

    def _lead_if_agreed(self, effects: list[ElectionEffect]) -> None:
        if not self._is_leading and self._now_ms < self.lease_until_ms:
            self._is_leading = True
            self._set_leader(self.me, effects)
            effects.append(BeginToLead(self._term))

    # ---- messages

    def _let_others(self, event: Resigned | TermSeen, effects: list[ElectionEffect]) -> None:
        if isinstance(event, TermSeen):
            if event.term > self._term:
                self._adopt(event.term, effects, f"there was a leader of term {event.term}")
                self._persist(effects)
        elif self._role is Role.LEADER and event.term == self._term:
            self._fall_back(effects, event.why)
            self._stand_at_ms += self.lease_ms
            effects.append(ReleaseLease(self._term))  # it cannot lead again in this term

    def _persisted(self, event: VotePersisted, effects: list[ElectionEffect]) -> None:
        if event.term >= self._durable[0]:
            self._durable = (event.term, event.voted_for)
        if self._role is Role.CANDIDATE and self._durable == (self._term, self.me):
            self._ayes.add(self.me)
            self._tally(effects)

    def _vote_requested(self, event: VoteRequested, effects: list[ElectionEffect]) -> None:
        is_bound = self._now_ms < self._promised_until_ms
        if event.is_trial:
            granted = not is_bound and event.term > self._term
        else:
            if event.term > self._term and not is_bound:
                self._adopt(event.term, effects, f"{event.candidate} stands in term {event.term}")
            granted = not is_bound and event.term == self._term and self._voted_for in (None, event.candidate)
            if granted:
                self._voted_for = event.candidate
                # Give the candidate that got the vote time to win.
                self._stand_at_ms = max(self._stand_at_ms, self._now_ms + self._round_ms())
            self._persist(effects)
        effects.append(AnswerVote(event.candidate, event.term, self._term, event.is_trial, granted))

    def _vote_answered(self, event: VoteAnswered, effects: list[ElectionEffect]) -> None:
        if event.known_term > self._term and not self._is_leading:
            self._adopt(event.known_term, effects, f"{event.voter} is in term {event.known_term}")
            self._persist(effects)
            return
        asked = Term(self._term + 1) if self._role is Role.TRYING else self._term
        wanted = Role.TRYING if event.is_trial else Role.CANDIDATE
        if event.granted and event.term == asked and self._role is wanted:
            self._ayes.add(event.voter)
            self._tally(effects)

    def _lease_requested(self, event: LeaseRequested, effects: list[ElectionEffect]) -> None:
        is_bound = self._now_ms < self._promised_until_ms and self._promised_to not in (None, event.leader)
        granted = event.term >= self._term and not is_bound
        if granted:
            if event.term > self._term:
                self._adopt(event.term, effects, f"{event.leader} leads in term {event.term}")
            elif self._role is not Role.FOLLOWER:
                self._fall_back(effects, f"{event.leader} leads in term {event.term}")
            self._persist(effects)
            self._promise(event.leader)
            self._stand_at_ms = self._promised_until_ms + self._delay_ms()
            self._set_leader(event.leader, effects)
        effects.append(AnswerLease(event.leader, event.term, self._term, event.sent_ms, granted))

    def _lease_answered(self, event: LeaseAnswered, effects: list[ElectionEffect]) -> None:
        if event.known_term > self._term:
            # A voter has promised another master meanwhile, or a candidate stood while we were cut off.
            self._adopt(event.known_term, effects, f"{event.follower} is in term {event.known_term}")
            self._persist(effects)
            return
        if event.sent_ms > self._now_ms:
            return  # not an answer to our request: the lease would never end
        if event.granted and event.term == self._term and self._role is Role.LEADER:
            before_ms = self._agreed_ms.get(event.follower, event.sent_ms)
            self._agreed_ms[event.follower] = max(before_ms, event.sent_ms)
            self._lead_if_agreed(effects)

    def _lease_released(self, event: LeaseReleased, effects: list[ElectionEffect]) -> None:
        if event.term == self._term and event.leader == self._promised_to != self.me:
            self._promised_to, self._promised_until_ms = None, self._now_ms
            self._stand_at_ms = self._now_ms + self._delay_ms()
            if self._leader == event.leader:
                self._set_leader(None, effects)

    # ---- steps

    def _adopt(self, term: Term, effects: list[ElectionEffect], why: str) -> None:
        """Adopt a higher term, in which this master has not voted."""
        if self._role is not Role.FOLLOWER:
            self._fall_back(effects, why)
        self._term = term
        self._voted_for = None

    def _fall_back(self, effects: list[ElectionEffect], why: str) -> None:
        """Become a follower."""
        was_leading, self._is_leading = self._is_leading, False
        self._role = Role.FOLLOWER
        self._ayes = set()
        self._agreed_ms = {}
        self._stand_at_ms = self._now_ms + self._delay_ms()
        if self._promised_to == self.me:
            # The promise to itself only protected its own lease.
            self._promised_to = None
            self._promised_until_ms = self._now_ms
        if was_leading:
            effects.append(StopLeading(self._term, why))
            self._set_leader(None, effects)

    def _persist(self, effects: list[ElectionEffect]) -> None:
        if self._durable != (self._term, self._voted_for):
            effects.append(PersistVote(self._term, self._voted_for))

    def _promise(self, leader: MasterAddress) -> None:
        self._promised_to = leader
        self._promised_until_ms = max(self._promised_until_ms, self._now_ms + self.lease_ms)

    def _set_leader(self, leader: MasterAddress | None, effects: list[ElectionEffect]) -> None:
        if leader != self._leader:
            self._leader = leader
            effects.append(FollowLeader(self._term, leader))

    def _delay_ms(self) -> int:
        """How long to wait before standing, so that masters do not stand all at once."""
        return int(self.lease_ms / 4 * self._random.random())

    def _round_ms(self) -> int:
        """How long a round of votes may take before the next."""
        return max(1, int(self.lease_ms / 4 * (1 + self._random.random())))


def _who(event: ElectionEvent) -> MasterAddress | None:
    match event:
        case VoteRequested():
            return event.candidate
        case VoteAnswered():
            return event.voter
        case LeaseRequested() | LeaseReleased():
            return event.leader
        case LeaseAnswered():
            return event.follower
        case _:
            return None
