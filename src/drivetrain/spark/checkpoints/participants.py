"""The fragments of this process that take part in checkpoints, and the routes to the others.

Problem: a fragment passes a command to its subscribers, which may run in another process; so may the
coordinator.

Design: one book per process. A fragment's participation joins it when its query starts. `tell` passes a
command to a fragment in this process, or to `send`, which in a cluster passes it to the application master;
`answer` sends an event to the coordinator. Lost messages are sent again, which the protocol allows for.

Invariants:

1. The book has the newest attempt of each fragment here.

Called by `participation`, and by the process that hosts the coordinator or is connected to it.
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


class CheckpointParticipant(Protocol):
    """A fragment's participation in checkpoints, as the book needs it; see `participation`."""

    @property
    def fragment(self) -> str:
        """The fragment's id."""
        ...

    def look(self) -> None:
        """There may be a barrier in one of its channels."""

    def receive(self, input: str, command: Command) -> None:
        """A command has arrived by an input."""


class SendCommand(Protocol):
    """Sends a command to a fragment of another process, by one of its inputs; returns at once."""

    def __call__(self, fragment: str, input: str, command: Command) -> None:
        """Send it."""


class SendAnswer(Protocol):
    """Sends an event to the coordinator; returns at once."""

    def __call__(self, event: ParticipantEvent) -> None:
        """Send it."""


class CheckpointBook:
    """The participations of one process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here: dict[str, CheckpointParticipant] = {}
        self._known: set[str] = set()
        self.send: SendCommand = _drop_command
        """Sends commands to fragments of other processes: the fragment, which of its inputs, the command."""
        self.answer: SendAnswer = _drop_event
        """Sends events to the coordinator; returns at once."""

    def joins(self, participation: CheckpointParticipant) -> None:
        """An attempt of a fragment takes part from now on."""
        fragment = participation.fragment
        with self._lock:
            self._here[fragment] = participation
            again = fragment in self._known
            self._known.add(fragment)
        if again:
            self.answer(ActionFailed(fragment, "it has started again"))
        else:
            # Commands from before it joined are lost; acknowledging no command has them sent again.
            self.answer(ActionAcked(fragment, Action.INITSTATE, NO_TXID - 1, 0, 0))

    def leaves(self, participation: CheckpointParticipant) -> None:
        """An attempt has ended."""
        with self._lock:
            if self._here.get(participation.fragment) is participation:
                del self._here[participation.fragment]

    def tell(self, fragment: str, input: str, command: Command) -> None:
        """Send a command to a fragment in any process, by one of its inputs."""
        with self._lock:
            participation = self._here.get(fragment)
        if participation is None:
            self.send(fragment, input, command)
        else:
            participation.receive(input, command)

    def look(self, fragment: str) -> None:
        """A barrier was appended to a channel of a fragment; one in another process polls for it."""
        with self._lock:
            participation = self._here.get(fragment)
        if participation is not None:
            participation.look()

    def receive(self, fragment: str, input: str, command: Command) -> None:
        """A command has arrived from another process; dropped if the fragment is not here (any more)."""
        with self._lock:
            participation = self._here.get(fragment)
        if participation is not None:
            participation.receive(input, command)


def _drop_command(fragment: str, input: str, command: Command) -> None:
    """The fragment does not run here: the command is sent again when it does."""


def _drop_event(event: ParticipantEvent) -> None:
    """Until there is a coordinator, events are dropped: it will ask again."""
