"""Any process to any master: which one leads.

A master is the actor `/user/master` of a system named `master`.
"""

from __future__ import annotations

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.messages.numbers import Count


class GetLeader(Message, frozen=True, tag="cluster.get-leader"):
    """Asks any master who leads; answered with `Leader`."""


class Leader(Message, frozen=True, tag="cluster.leader"):
    """The leader that the answering master knows; None when it knows none.

    `address` is the leader's `host:port` as in the list of masters; `master` is its actor.
    """

    term: Count
    address: str | None
    master: ActorRef | None


class NotLeader(Message, frozen=True, tag="cluster.not-leader"):
    """The answer of a master that does not lead to a request that only the leader handles."""

    leader: Leader
