"""What happens to an election, and what it has done: events in, effects out, as plain data.

Invariant: effects are performed in the order in which they come; see `election`.

Called by `election`, and by `drivetrain.cluster.master.registry.election_actor`, which makes the events and
performs the effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

MasterAddress = NewType("MasterAddress", str)
"""`host:port`, as the list of masters has it."""
Term = NewType("Term", int)

# ---- events


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing happened; sent often, several times in a lease."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """The leader of `term` cannot do its work, as it cannot write: it lets others try for a lease."""

    term: Term
    why: str


@dataclass(frozen=True, slots=True)
class TermSeen:
    """There was a leader of this term, as the fence of a master says: the next one needs a higher term."""

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
    """The answer to `RequestVote`; `term` is the one that was asked for, `known_term` the voter's own."""

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
    """The answer to `RequestLease`; `term` is the one that was asked for, `known_term` the other's own."""

    follower: MasterAddress
    term: Term
    known_term: Term
    sent_ms: int
    granted: bool


ElectionEvent = (
    TimePassed
    | Resigned
    | TermSeen
    | VotePersisted
    | VoteRequested
    | VoteAnswered
    | LeaseRequested
    | LeaseAnswered
)

# ---- effects


@dataclass(frozen=True, slots=True)
class PersistVote:
    """Effect: make term and vote durable before any effect after this one, then say `VotePersisted`."""

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
class AnswerLease:
    """Effect: answer a leader."""

    leader: MasterAddress
    term: Term
    known_term: Term
    sent_ms: int
    granted: bool


@dataclass(frozen=True, slots=True)
class BeginToLead:
    """Effect: this master leads in `term` from now on, as long as `leads` says so."""

    term: Term


@dataclass(frozen=True, slots=True)
class StopLeading:
    """Effect: this master no longer leads in `term`."""

    term: Term
    why: str


@dataclass(frozen=True, slots=True)
class FollowLeader:
    """Effect: who leads, as far as this master knows, has changed; None means nobody known."""

    term: Term
    leader: MasterAddress | None


ElectionEffect = (
    PersistVote
    | RequestVote
    | AnswerVote
    | RequestLease
    | AnswerLease
    | BeginToLead
    | StopLeading
    | FollowLeader
)
