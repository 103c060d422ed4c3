"""Executors of an application: flow control of channels between them, relayed by the application master."""

from __future__ import annotations

from drivetrain.actor import Message
from drivetrain.cluster.messages.numbers import Count
from drivetrain.core.flow.flow import Word


class RelayedWord(Message, frozen=True, tag="cluster.relayed-word"):
    """A message for a fragment elsewhere; sent to the application master, which forwards it to its executor.

    It may be lost, when the fragment has no executor or does not run there yet. The sender repeats it.
    """

    epoch: Count
    word: Word
