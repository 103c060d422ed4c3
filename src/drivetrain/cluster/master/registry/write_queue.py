"""A queue of actions that must wait until a majority has all earlier changes.

Invariants:
1. Actions are done in order, and only when everything put before them is durable on a majority. An action
   that raises does not prevent the others.
2. Clients that wait for an answer when the term ends get `NotLeader`: the outcome of their request is
   unknown.
3. `kept` has the newest record of each application that was put.

Called by `application_manager` and `app_masters`; `PutDone` comes from the registry's actor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.guarded import ErrorCounts, answer, attempt
from drivetrain.cluster.master.master_messages import Put
from drivetrain.cluster.master.registry import application_records
from drivetrain.cluster.messages.leadership import Leader, NotLeader
from drivetrain.core.cluster.application_record import ApplicationRecord


class DurableQueue:
    """Sends changes to `registry`, in the name of the actor `owner`, which gets `PutDone`.

    `records` are those that a majority has already; `mishaps` counts errors of actions.
    """

    def __init__(
        self,
        registry: ActorRef,
        owner: ActorRef,
        records: Mapping[str, ApplicationRecord],
        mishaps: ErrorCounts,
    ) -> None:
        self._registry: Final = registry
        self._owner: Final = owner
        self._mishaps: Final = mishaps
        self.kept: Final = dict(records)
        self._puts = 0
        self._durable = 0
        self._waiting: deque[tuple[int, Callable[[], None], ActorRef | None]] = deque()

    def put(self, changes: dict[str, bytes | None]) -> None:
        """Write changes to a majority; None deletes."""
        self._puts += 1
        self._registry.tell(Put(self._puts, changes), self._owner)

    def keep(self, record: ApplicationRecord, more: dict[str, bytes | None] | None = None) -> None:
        """Write a record to a majority."""
        self.kept[record.app_id] = record
        self.put({application_records.key_of(record): application_records.encode(record), **(more or {})})

    def forget(self, records: Sequence[ApplicationRecord]) -> None:
        """Delete records from a majority."""
        for record in records:
            self.kept.pop(record.app_id, None)
        self.put({application_records.key_of(record): None for record in records})

    def then(self, action: Callable[[], None]) -> None:
        """Do an action once everything put so far is durable on a majority; at once if it is already."""
        self._add(action, None)

    def answer(self, asker: ActorRef | None, message: Message) -> None:
        """Answer a client once everything put so far is durable on a majority."""
        if asker is not None:
            self._add(lambda: answer(asker, message), asker)

    def put_done(self, number: int) -> None:
        """All puts up to this number are durable on a majority."""
        self._durable = max(self._durable, number)
        while self._waiting and self._waiting[0][0] <= self._durable:
            attempt("what waited for a majority failed", self._mishaps, self._waiting.popleft()[1])

    def leave(self, term: int) -> None:
        """This master no longer leads: answer waiting clients `NotLeader`, so that they find the next one."""
        for _, _, asker in self._waiting:
            if asker is not None:
                asker.tell(NotLeader(Leader(term, None, None)))
        self._waiting.clear()

    def _add(self, action: Callable[[], None], asker: ActorRef | None) -> None:
        if self._puts == self._durable:
            attempt("an answer failed", self._mishaps, action)
        else:
            self._waiting.append((self._puts, action, asker))
