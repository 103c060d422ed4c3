"""Requests to one executor on behalf of the whole application, to prepare it and to conclude it.

Problem: an executor may die or never answer, and its answer may arrive after another one was asked.

Design: one request is under way at a time; each has a number, and only the answer to the latest counts.

Invariants:
1. At most one executor has a request that counts.
2. The application is prepared once an executor has answered that it is, and remains prepared.

Called by `application_lifecycle`, which chooses executors and acts on the outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.app_master import waiting_reasons
from drivetrain.cluster.app_master.app_master_messages import AskOutcome
from drivetrain.cluster.app_master.executors.executor_pool import Member
from drivetrain.cluster.messages.executing import (
    Conclude,
    Concluded,
    Prepare,
    Prepared,
    PrepareDeferred,
)

Ask: TypeAlias = Callable[[str, int, ActorRef, Message, int], None]
"""Like `ApplicationMaster.ask`."""


class ApplicationRequests:
    """The requests for one application; `timeout_ms` is how long each may take."""

    def __init__(self, ask: Ask, timeout_ms: int) -> None:
        self._ask: Final = ask
        self._timeout_ms: Final = timeout_ms
        self._member: Member | None = None  # the executor of the request under way
        self._what = ""
        self._number = 0
        self._helpers: set[str] = set()  # executors that have had a request: Spark runs there
        self.prepared: Prepared | None = None
        """The answer of the executor that prepared the application; None before."""
        self.waits: str | None = None
        """What the application waits for before it can be prepared, after "waiting for"; None: nothing."""
        self.printed = ""
        """The text that the application's hooks printed at its end."""

    @property
    def is_under_way(self) -> bool:
        """Whether an executor has a request now."""
        return self._member is not None

    @property
    def is_concluding(self) -> bool:
        """Whether an executor records the application's end now."""
        return self.is_under_way and self._what == "conclude"

    def prepare(self, member: Member, message: Prepare) -> None:
        """Ask the executor to prepare the application."""
        self._send("prepare", member, message)

    def conclude(self, member: Member, message: Conclude) -> None:
        """Ask the executor to record the application's end."""
        self._send("conclude", member, message)

    def answered(self, answer: AskOutcome) -> tuple[str, Member] | None:
        """Handle an answer; returns its request and executor, None when it no longer counts."""
        member = self._member
        if answer.number != self._number or member is None:
            return None
        self._member = None
        self._helpers.add(member.id)
        if self._what == "prepare":
            self.waits = answer.answer.why if isinstance(answer.answer, PrepareDeferred) else None
        match answer.answer:
            case Prepared() as prepared if self._what == "prepare":
                self.prepared = prepared
                member.spark_master = prepared.spark_master
            case Concluded(printed) if self._what == "conclude":
                self.printed = printed
        return self._what, member

    def waiting_for(self) -> str | None:
        """The reason why the application waits, while a request is under way or repeated; else None."""
        if self._member is None or self.waits is not None:
            return self.waits
        if self._what == "prepare":
            return waiting_reasons.preparation(self._member, is_first=self._member.id not in self._helpers)
        return waiting_reasons.conclusion(self._member)

    def _send(self, what: str, member: Member, message: Message) -> None:
        assert member.executor is not None
        self._what, self._member = what, member
        self._number += 1
        self._ask(what, self._number, member.executor, message, self._timeout_ms)
