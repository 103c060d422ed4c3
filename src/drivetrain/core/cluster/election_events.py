"""The events and effects of an election, as plain data.

Invariant: effects are performed in the order in which they come; see `election`.

Called by `election`, and by `drivetrain.cluster.master.registry.election_actor`, which creates the events and
performs the effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

MasterAddress = NewType("MasterAddress", str)
"""`host:port`, as in the list of masters."""
Term = NewType("Term", int)

# ---- events


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing happened; sent often, several times in a lease."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """The leader of `term` cannot write, and lets others try for a lease."""

    term: Term
    why: str


@dataclass(frozen=True, slots=True)
class TermSeen:
    """A master's fence shows that this term had a leader: the next one needs a higher term."""

    term: Term


@dataclass(frozen=True, slots=True)
class VotePersisted:
    """The vote of a `PersistVote` is durable."""

    term: Term
    voted_for: MasterAddress | None


@dataclass(frozen=True, slots=True)
class VoteRequested:
    """A master stands in a term, or asks whether it could (`is_trial`)."""

    candidate: MasterAddress
    term: Term
    is_trial: bool


@dataclass(frozen=True, slots=True)
class VoteAnswered:
    """The answer to `RequestVote`; `term` is the requested one, `known_term` the voter's own."""

    voter: MasterAddress
    term: Term
    known_term: Term
    is_trial: bool
    granted: bool


@dataclass(frozen=True, slots=True)
class LeaseRequested:
    """A leader asks for its lease; `sent_ms` is by its own clock and comes back in the answer."""

    leader: MasterAddress
    term: Term
    sent_ms: int


@dataclass(frozen=True, slots=True)
class LeaseAnswered:
    """The answer to `RequestLease`; `term` is the requested one, `known_term` the other's own."""

    follower: MasterAddress
    term: Term
    known_term: Term
    sent_ms: int
    granted: bool


@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """A leader that has resigned in this term releases the others from their promises."""

    leader: MasterAddress
    term: Term


ElectionEvent = (
    TimePassed
    | Resigned
    | TermSeen
    | VotePersisted
    | VoteRequested
    | VoteAnswered
    | LeaseRequested
    | LeaseAnswered
    | LeaseReleased
)

# ---- effects


@dataclass(frozen=True, slots=True)
class PersistVote:
    """Effect: make term and vote durable before any effect after this one, then send `VotePersisted`."""

    term: Term
    voted_for: MasterAddress | None


@dataclass(frozen=True, slots=True)
class RequestVote:
    """Effect: ask every other master for its vote."""

    term: Term
    is_trial: bool


@dataclass(frozen=True, slots=True)
class AnswerVote:
    """Effect: answer a candidate."""

    candidate: MasterAddress
    term: Term
    known_term: Term
    is_trial: bool
    granted: bool


@dataclass(frozen=True, slots=True)
class RequestLease:
    """Effect: ask every other master for the lease."""

    term: Term
    sent_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Effect: release every other master from its promise, as this one no longer leads in the term."""

    term: Term


@dataclass(frozen=True, slots=True)
class AnswerLease:
    """Effect: answer a leader."""

    leader: MasterAddress
    term: Term
    known_term: Term
    sent_ms: int
    granted: bool


@dataclass(frozen=True, slots=True)
class BeginToLead:
    """Effect: this master leads in `term` from now on, while `leads` returns True."""

    term: Term


@dataclass(frozen=True, slots=True)
class StopLeading:
    """Effect: this master no longer leads in `term`."""

    term: Term
    why: str


@dataclass(frozen=True, slots=True)
class FollowLeader:
    """Effect: this master now knows another leader, or (None) none."""

    term: Term
    leader: MasterAddress | None


ElectionEffect = (
    PersistVote
    | RequestVote
    | AnswerVote
    | RequestLease
    | ReleaseLease
    | AnswerLease
    | BeginToLead
    | StopLeading
    | FollowLeader
)
