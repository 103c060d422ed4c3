"""Executors of an application: what the two ends of a channel say, relayed by their application master."""

from __future__ import annotations

from drivetrain.actor import Message
from drivetrain.cluster.messages.numbers import Count
from drivetrain.core.flow.flow import Word


class RelayedWord(Message, frozen=True, tag="cluster.relayed-word"):
    """A word for a fragment that runs elsewhere; told to the application master, who tells its executor.

    It may be lost: who runs the fragment may not be known, or not run it yet. It is said again.
    """

    epoch: Count
    word: Word
