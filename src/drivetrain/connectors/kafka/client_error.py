"""An error of one of Kafka's clients, in a form that both share.

Called by `target_topic`, `java_producer` and `transactional_producer`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ClientError(Exception):
    """An error of a client: its name in Kafka's protocol, or the client's own, and its text.

    `again`: the same call may be tried again. `passes`: another transaction may work where this one did not.
    """

    name: str
    text: str
    again: bool = False
    passes: bool = False

    def __str__(self) -> str:
        return self.text
