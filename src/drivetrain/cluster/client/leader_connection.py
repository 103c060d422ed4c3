"""Asks the leading master, finding the current one first.

Problem: masters die, freeze and are cut off, and answers are lost. A client wants one answer within a
stated time, or the reason why there is none.

Design: each attempt goes to the leader that answered last, else to the one that a search finds. After
`NotLeader`, a timeout or an unreachable leader, the client searches again and repeats the request: it must be
safe to repeat, or `done` checks whether it has had its effect.

Invariants:
1. An answer is returned, or an error raised, within the timeout plus one attempt's.
2. A request is only sent to a master that was found to lead.

Called by `client.Client`. Source: Gearpump's MasterProxy, which asks all masters and keeps the one that
answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from drivetrain.actor import (
    ActorFailedError,
    ActorRef,
    ActorSystem,
    AskError,
    Message,
    UnexpectedReplyError,
)
from drivetrain.cluster.leader import LeaderSearch, NoLeaderError, no_leader, require_secret
from drivetrain.cluster.messages.leadership import NotLeader
from drivetrain.errors import DrivetrainError

R = TypeVar("R", bound=Message)

ATTEMPT_MS: Final = 4_000
"""How long one master may take to answer before another is tried."""

_PAUSE_S: Final = 0.2


class LeaderConnection:
    """The line to the leader: `masters` are all of them as HOST:PORT."""

    def __init__(self, system: ActorSystem, masters: Sequence[str], timeout_ms: int) -> None:
        self._system: Final = system
        self._search: Final = LeaderSearch(system, masters)
        self._leader: ActorRef | None = None
        self.timeout_ms: Final = timeout_ms

    @property
    def leader(self) -> str | None:
        """HOST:PORT of the master that answered last; None before, and while none answers."""
        address = None if self._leader is None else self._leader.path.address
        return None if address is None else f"{address.host}:{address.port}"

    async def ask(
        self,
        message: Message,
        reply: type[R],
        *,
        timeout_ms: int | None = None,
        done: Callable[[], Awaitable[R | None]] | None = None,
    ) -> R:
        """Ask the leader repeatedly until it answers; `timeout_ms` None means the client's.

        For a request that must not be repeated, `done` checks before each further attempt whether an earlier
        one has worked, and returns what its answer would have been. Raises `ActorFailedError` for a `Failure`
        other than "no-quorum", NoLeaderError, NoMasterError, SecretRefusedError.
        """
        end_s = self._system.loop.time() + (self.timeout_ms if timeout_ms is None else timeout_ms) / 1000
        refusal: ActorFailedError | None = None
        was_sent = False
        while True:
            leader = self._leader or await self._find()
            if leader is not None:
                if was_sent and done is not None and (known := await done()) is not None:
                    return known
                try:
                    was_sent = True
                    answer = await leader.ask(message, timeout_ms=ATTEMPT_MS)
                except ActorFailedError as error:
                    if error.failure_code != NoLeaderError.code:
                        raise
                    self._leader, refusal = None, error
                except AskError:
                    # Dead, frozen, cut off, or only slow: another master may lead by now.
                    self._leader = None
                else:
                    if isinstance(answer, reply):
                        self._leader = leader
                        return answer
                    self._leader = _next(leader, answer, reply)
            if self._system.loop.time() >= end_s:
                raise self._no_answer(refusal)
            await asyncio.sleep(_PAUSE_S)

    async def ask_any(self, message: Message, reply: type[R]) -> R:
        """Ask the masters one after the other until one answers; raises NoMasterError, SecretRefusedError."""
        end_s = self._system.loop.time() + self.timeout_ms / 1000
        while True:
            for place in self._search.masters:
                master = await self._search.master(place)
                if master is None:
                    continue
                try:
                    return await master.ask(message, reply, timeout_ms=ATTEMPT_MS)
                except AskError:
                    self._search.forget(place)
            require_secret(self._system, self._search.masters)
            if self._system.loop.time() >= end_s:
                raise no_leader(self._system, self._search.masters, frozenset())
            await asyncio.sleep(_PAUSE_S)

    async def _find(self) -> ActorRef | None:
        found = await self._search.round()
        if found is None and not self._search.answered:
            require_secret(self._system, self._search.masters)
        return None if found is None else found.master

    def _no_answer(self, refusal: ActorFailedError | None) -> DrivetrainError:
        masters = self._search.masters
        if refusal is None:
            return no_leader(self._system, masters, self._search.answered)
        # A master believed that it led, but could not reach a majority.
        return NoLeaderError(
            refusal.what,
            where=", ".join(masters),
            expected=f"{len(masters) // 2 + 1} of {len(masters)} masters",
            remedy=refusal.remedy
            or "start the missing masters, or try again in a moment; applications keep running",
        )


def _next(asked: ActorRef, answer: Message, reply: type[Message]) -> ActorRef | None:
    if isinstance(answer, NotLeader):
        return answer.leader.master
    raise UnexpectedReplyError(
        "the master's answer has an unexpected type",
        where=str(asked.path),
        expected=reply.__qualname__,
        got=type(answer).__qualname__,
        remedy="use one version of Drivetrain everywhere",
    )
