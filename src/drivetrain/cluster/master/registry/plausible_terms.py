"""Refuses implausible terms: far above every term that this master knows.

Problem: a term that a master has accepted is never lowered, and each fence refuses all lower ones. A stamp or
a base of an extreme term would hide everything written later. A single wrong number from another master would
become the last term forever.

Design: terms grow by one with each election. A message is refused when any of its terms is further ahead than
elections could have brought it, whether the term is a field of the message, or in a stamp, a base or a
digest.

Called by the actors of a master, for messages of other masters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from drivetrain.actor import Message
from drivetrain.cluster.messages.replication import (
    Digest,
    Entries,
    EntriesWritten,
    Gossip,
    GossipDigest,
    LeaseReply,
    LeaseRequest,
    ReadDigest,
    ReleaseLease,
    TermRefused,
    VoteReply,
    VoteRequest,
    WriteBase,
    WriteEntries,
    WriteFailed,
)
from drivetrain.core.cluster.replicated_map import MapDigest, MapEntry

log: Final = logging.getLogger("drivetrain.cluster")

MOST_AHEAD: Final = 2**32
"""One election per second reaches this in 136 years."""


def is_plausible(message: Message, known_term: int) -> bool:
    """Whether the terms in another master's message are plausible, given `known_term`; logs if not."""
    if all(0 <= term <= known_term + MOST_AHEAD for term in _terms_of(message)):
        return True
    log.warning("refused %s of a term that cannot be", type(message).__name__)
    return False


def _terms_of(message: Message) -> Iterable[int]:
    match message:
        case (
            VoteRequest() | LeaseRequest() | ReleaseLease() | ReadDigest() | EntriesWritten() | WriteFailed()
        ):
            return (message.term,)
        case VoteReply() | LeaseReply():
            return (message.term, message.known_term)
        case TermRefused():
            return (message.term, message.fence)
        case Entries():
            return _of_entries(message.entries)
        case WriteEntries():
            return (message.term, *_of_entries(message.entries))
        case Gossip():
            return (message.base.term,)
        case GossipDigest():
            return _of_digest(message.digest)
        case Digest() | WriteBase():
            return (message.term, *_of_digest(message.digest))
        case _:
            return ()


def _of_entries(entries: Iterable[MapEntry]) -> list[int]:
    return [entry.stamp.term for entry in entries]


def _of_digest(digest: MapDigest) -> list[int]:
    return [digest.base.term, *(stamp.term for stamp in digest.stamps.values())]
