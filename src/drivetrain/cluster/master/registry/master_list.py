"""Whether the masters have the same list of masters; of two that differ, the one that started later ends.

Problem. A master whose list differs from the others' would wait for them forever, or lead its own cluster.
Masters start in any order and at the same time, and one may be on a list that lacks the other.

Design. Every master process that is found is asked for its list, and so is every master whose messages show
another list; the request contains the asker's own list. Of two that differ, the one with the shorter uptime
ends with an error that shows both lists; the other one, which may be part of a working cluster, logs the
error and keeps running. If they started at about the same time, neither can be preferred, and both end.

Invariants:
1. Of two masters that differ and can reach each other, at least one ends, and both log why.
2. A master that has to end takes no further part in the cluster (`Leadership.refusal`).

Called by `election_actor` (`CompareLists`) within the same master, and by that of the others
(`GetMasterList`, forwarded).
"""

from __future__ import annotations

import logging
from typing import Final

from drivetrain.actor import ActorRef, Message
from drivetrain.actor.path import Address
from drivetrain.cluster.guarded import GuardedActor
from drivetrain.cluster.master.master_messages import CompareLists, Leadership, ListCompared
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.messages.replication import GetMasterList, MasterList
from drivetrain.config.catalog import cluster as cluster_keys
from drivetrain.errors import ConfigError

log = logging.getLogger("drivetrain.cluster")

_ANSWER_MS: Final = 1_000
_MOST: Final = 100
"""How many unlisted masters are asked at a time, and remembered."""
SAME_TIME_MS: Final = 2 * _ANSWER_MS
"""A smaller difference counts as the same start time, as the answer's delay blurs the uptime."""


class Agreement(GuardedActor):
    """Compares the list of this master with those of others."""

    def __init__(self, settings: MasterSettings, leadership: Leadership) -> None:
        self._settings: Final = settings
        self._leadership: Final = leadership
        self._asking: set[str] = set()
        self._done: dict[str, Address] = {}  # the process of each master whose list was compared
        self._logged: set[tuple[str, tuple[str, ...]]] = set()

    def act(self, message: Message) -> None:
        """Handle one message."""
        match message:
            case CompareLists():
                self._compare(message)
            case ListCompared(address, master, masters, age_ms):
                self._asking.discard(address)
                if master is not None:
                    self._done[address] = master.path.address
                    if len(self._done) > _MOST:
                        del self._done[next(iter(self._done))]
                    self._judge(address, masters, age_ms)
            case GetMasterList(asker, masters, age_ms):
                self.context.reply(MasterList(self._settings.masters, self._leadership.age_ms()))
                if asker is not None:
                    self._judge(asker, masters, age_ms)
            case _:
                self.context.unhandled(message)

    def _compare(self, message: CompareLists) -> None:
        address = message.address
        known = None if message.master is None else message.master.path.address
        if address in self._asking or (known is not None and self._done.get(address) == known):
            return
        if len(self._asking) >= _MOST and address not in self._settings.peers:
            return
        self._asking.add(address)
        self.context.pipe_to_self(
            self._ask(address),
            lambda found: ListCompared(address, found[0], found[1].masters, found[1].age_ms),
            lambda _: ListCompared(address, None, (), 0),  # it is asked again after its next message
        )

    async def _ask(self, address: str) -> tuple[ActorRef, MasterList]:
        path = f"drivetrain://master@{address}/user/master"
        master = await self.context.system.lookup(path, timeout_ms=_ANSWER_MS)
        question = GetMasterList(self._settings.me, self._settings.masters, self._leadership.age_ms())
        return master, await master.ask(question, MasterList, timeout_ms=_ANSWER_MS)

    def _judge(self, address: str, masters: tuple[str, ...], age_ms: int) -> None:
        settings, leadership = self._settings, self._leadership
        if sorted(masters) == sorted(settings.masters) or leadership.refusal is not None:
            return
        error = ConfigError(
            f"the masters disagree about who the masters are: {address} has another list",
            where=cluster_keys.MASTERS.name,
            expected=", ".join(masters),
            got=", ".join(settings.masters),
            remedy="write the same list on every machine and start this master again",
        )
        if leadership.age_ms() < age_ms + SAME_TIME_MS:
            log.error("%s ends: %s", settings.me, error)
            leadership.refuse(error)
        elif (address, masters) not in self._logged and len(self._logged) < _MOST:
            self._logged.add((address, masters))
            log.error("%s keeps running, as it started first: %s", settings.me, error)
