"""A round of the leader's writes: messages that a majority of replicas must acknowledge in time.

Design: a delayed operation of the purgatory, completed by acknowledgements. A replica that has not
acknowledged gets the messages again after a pause that doubles, so that a slow one is not flooded.

Called by `registry`.
"""

from __future__ import annotations

from typing import Final

from drivetrain.actor import ActorRef, Message
from drivetrain.core.waiting.waiting_operations import DelayedOperation

_FIRST_PAUSE_MS: Final = 200


class RoundExpired(Message, frozen=True, tag="dt.local.master.round-expired"):
    """The purgatory to the registry's actor: a write has waited long enough for a majority."""

    round: int


class Round(DelayedOperation):
    """Waits until a majority has acknowledged one round; `registry` gets `RoundExpired` on a timeout."""

    __slots__ = ("_due_ms", "acknowledged", "messages", "number", "quorum", "registry")

    def __init__(
        self, number: int, messages: list[Message], quorum: int, timeout_ms: int, registry: ActorRef
    ) -> None:
        super().__init__(timeout_ms)
        self.number = number
        self.messages = messages
        self.quorum = quorum
        self.registry = registry
        self.acknowledged: set[str] = set()
        self._due_ms: dict[str, tuple[int, int]] = {}  # when to send again, and the pause before that

    def is_due(self, master: str, now_ms: int) -> bool:
        """Whether to send the messages to a replica now; if so, counts them as sent."""
        due_ms, pause_ms = self._due_ms.get(master, (now_ms, _FIRST_PAUSE_MS // 2))
        if master in self.acknowledged or now_ms < due_ms:
            return False
        self._due_ms[master] = (now_ms + 2 * pause_ms, 2 * pause_ms)
        return True

    def tell(self, replica: ActorRef, sender: ActorRef) -> None:
        """Send the messages to a replica."""
        for message in self.messages:
            replica.tell(message, sender)

    def try_complete(self) -> bool:
        """Complete when a majority has acknowledged."""
        return len(self.acknowledged) >= self.quorum and self.force_complete()

    def on_complete(self) -> None:
        """Do nothing: the actor checks for completion in its own handler."""

    def on_expiration(self) -> None:
        """Send the actor `RoundExpired`."""
        self.registry.tell(RoundExpired(self.number))
