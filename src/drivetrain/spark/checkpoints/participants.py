"""The fragments of this process that take part in checkpoints, and the ways to the others.

Problem: a command goes from a fragment to those that read what it writes, which may run in another process;
the coordinator may, too.

Design: one book a process. A fragment's participation joins it when its query starts. `tell` hands a
command to a fragment that is here, else to `send`, which in a cluster hands it to the application master;
`answer` takes what the coordinator is to hear. What gets lost is said again: the protocol is made for it.

Invariants:

1. A fragment here is that of its newest attempt.

Called by `participation`, and by who hosts the coordinator or is connected to it.
"""

from __future__ import annotations

import threading
from typing import Protocol

from drivetrain.core.checkpoint.transaction import (
    NO_TXID,
    Action,
    ActionAcked,
    ActionFailed,
    Command,
    ParticipantEvent,
)


class Participating(Protocol):
    """A fragment's part in checkpoints, as the book needs it; see `participation`."""

    @property
    def fragment(self) -> str:
        """The fragment's id."""
        ...

    def look(self) -> None:
        """There may be a barrier in one of its channels."""

    def hear(self, input: str, command: Command) -> None:
        """A command has come by an input."""


class Send(Protocol):
    """Takes a command for a fragment of another process, by one of its inputs; returns at once."""

    def __call__(self, fragment: str, input: str, command: Command) -> None:
        """Take it."""


class Answer(Protocol):
    """Takes what the coordinator is to hear; returns at once."""

    def __call__(self, event: ParticipantEvent) -> None:
        """Take it."""


class CheckpointBook:
    """The participations of one process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here: dict[str, Participating] = {}
        self._known: set[str] = set()
        self.send: Send = _to_nobody
        """Takes commands for fragments elsewhere: the fragment, by which of its inputs, the command."""
        self.answer: Answer = _unheard
        """Takes what the coordinator is to hear; returns at once."""

    def joins(self, participation: Participating) -> None:
        """An attempt of a fragment takes part from now on."""
        fragment = participation.fragment
        with self._lock:
            self._here[fragment] = participation
            again = fragment in self._known
            self._known.add(fragment)
        if again:
            self.answer(ActionFailed(fragment, "it has started again"))
        else:
            # What was told before it was here is lost: an answer about nothing has it told again.
            self.answer(ActionAcked(fragment, Action.INITSTATE, NO_TXID - 1, 0, 0))

    def leaves(self, participation: Participating) -> None:
        """An attempt is over."""
        with self._lock:
            if self._here.get(participation.fragment) is participation:
                del self._here[participation.fragment]

    def tell(self, fragment: str, input: str, command: Command) -> None:
        """Tell a fragment, wherever it is, a command that comes by one of its inputs."""
        with self._lock:
            participation = self._here.get(fragment)
        if participation is None:
            self.send(fragment, input, command)
        else:
            participation.hear(input, command)

    def look(self, fragment: str) -> None:
        """A barrier was put into a channel of a fragment; it looks by itself if it is not here."""
        with self._lock:
            participation = self._here.get(fragment)
        if participation is not None:
            participation.look()

    def hear(self, fragment: str, input: str, command: Command) -> None:
        """A command has come from elsewhere; it is dropped if the fragment is not here (any more)."""
        with self._lock:
            participation = self._here.get(fragment)
        if participation is not None:
            participation.hear(input, command)


def _to_nobody(fragment: str, input: str, command: Command) -> None:
    """A fragment that does not run: it is told again when it does."""


def _unheard(event: ParticipantEvent) -> None:
    """Before there is a coordinator nobody listens: it asks again."""
