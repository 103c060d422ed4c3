"""Anybody to any master: who leads. A master is the actor `/user/master` of a system named `master`."""

from __future__ import annotations

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.messages.numbers import Count


class GetLeader(Message, frozen=True, tag="cluster.get-leader"):
    """Asks any master who leads; answered with `Leader`."""


class Leader(Message, frozen=True, tag="cluster.leader"):
    """Who leads, as the answering master knows it: None when it knows of none.

    `address` is `host:port`, as the list of masters has it; `master` is its actor.
    """

    term: Count
    address: str | None
    master: ActorRef | None


class NotLeader(Message, frozen=True, tag="cluster.not-leader"):
    """The answer of a master that does not lead, to whatever only the leader does."""

    leader: Leader
