"""Finds the leading master, and notices when another one leads.

Problem: any master may die, freeze or be cut off; a frozen one still believes that it leads when it wakes.
Processes that depend on the leader must find the current one quickly, all by the same rules.

Design: `LeaderSearch` asks all masters at once who leads; the answer of the highest term counts once the
named master confirms it. `find_leader` repeats that until a timeout, for clients. `LeaderLink` does it for an
actor: it regularly asks the leader whether it still leads, and calls the actor back when it has found or lost
the leader, or another one leads. It watches all masters that it has met: only watched actors get heartbeats,
and only heartbeats reveal a connection whose other end vanished without closing it.

Invariants:
1. Every leader that is returned or passed to a callback has itself confirmed that it leads, in its term.
2. A link never goes back to a lower term, unless a majority of masters knows no term as high (all of them
   lost their disks).
3. A link calls `on_lost` only after `on_found`. A second `on_found` for the same leader means that the
   leader was unreachable meanwhile and may have forgotten this process.

Called by workers, application masters and clients. Source: Gearpump's MasterProxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from drivetrain.actor import (
    ActorNotFoundError,
    ActorRef,
    ActorSystem,
    AskError,
    Context,
    LookupTimeoutError,
    Message,
    SystemView,
    Terminated,
)
from drivetrain.actor.remote import HandshakeError, Remote
from drivetrain.cluster.messages.leadership import GetLeader, Leader, NotLeader
from drivetrain.errors import DrivetrainError, UnavailableError, UserError

ASK_MS: Final = 2_000
CHECK_MS: Final = 2_000
FIRST_PAUSE_MS: Final = 200
LAST_PAUSE_MS: Final = 2_000
_OTHERS_S: Final = 0.3


class NoLeaderError(UnavailableError):
    """Masters answer and none of them leads: a majority is missing. Applications keep running."""

    code = "no-quorum"


class NoMasterError(UnavailableError):
    """No master on the list answered in time."""

    code = "masters-unreachable"


class SecretRefusedError(UserError):
    """The masters and this process do not share one secret."""

    code = "wrong-secret"


class LeaderSearchResult(Message, frozen=True, tag="dt.local.cluster.leader-known"):
    """The outcome of a link's search or check; `answered` is how many masters answered."""

    leader: Leader | None
    answered: int = 0


class CheckLeader(Message, frozen=True, tag="dt.local.cluster.leader-look"):
    """A link's timer."""


class LeaderSearch:
    """Asks the masters (HOST:PORT each) who leads."""

    def __init__(self, system: SystemView, masters: Sequence[str]) -> None:
        self._system: Final = system
        self._found: Final[dict[str, ActorRef]] = {}
        self.masters: Final = tuple(masters)
        self.answered: frozenset[str] = frozenset()
        """The masters (HOST:PORT) that answered in the last round."""
        self.leads: str | None = None
        """HOST:PORT of the last leader found."""

    async def round(self) -> Leader | None:
        """Ask all masters once; None when none leads, or the leader cannot be reached."""
        answers = await self._ask_all()
        best: Leader | None = None
        for answer in answers.values():
            if answer.master is not None and (best is None or answer.term > best.term):
                best = answer
        if best is None or best.address is None:
            return None
        own = answers.get(best.address)
        if own is None or own.term < best.term:
            own = await self.confirm(best)
        if own is None or own.master != best.master or own.term < best.term:
            return None
        self.leads = own.address
        return own

    async def confirm(self, leader: Leader) -> Leader | None:
        """Ask the leader itself who leads; None without an answer."""
        assert leader.master is not None
        try:
            return await leader.master.ask(GetLeader(), Leader, timeout_ms=ASK_MS)
        except AskError:
            return None

    async def master(self, place: str) -> ActorRef | None:
        """The actor of the master at HOST:PORT; None when it cannot be reached."""
        reference = self._found.get(place)
        if reference is None:
            try:
                path = f"drivetrain://master@{place}/user/master"
                reference = await self._system.lookup(path, timeout_ms=ASK_MS)
            except (AskError, ActorNotFoundError, LookupTimeoutError):
                return None
            self._found[place] = reference
        return reference

    def forget(self, place: str) -> None:
        """Look the master up again next time: a restarted one has another reference."""
        self._found.pop(place, None)

    @property
    def met(self) -> list[ActorRef]:
        """The masters found so far, in the order of the list."""
        return [self._found[place] for place in self.masters if place in self._found]

    def forget_actor(self, master: ActorRef) -> None:
        """Like `forget`, given the master's actor."""
        for place in [place for place, found in self._found.items() if found == master]:
            self.forget(place)

    async def _ask_all(self) -> dict[str, Leader]:
        """The answers by master; once one has named a leader, the others get only a moment more."""
        pending = {asyncio.ensure_future(self._ask_one(place)): place for place in self.masters}
        places = dict(pending)
        answers: dict[str, Leader] = {}
        waiting = set(pending)
        timeout_s: float | None = None
        try:
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                for task in sorted(done, key=lambda task: places[task]):
                    answer = task.result()
                    if answer is not None:
                        answers[places[task]] = answer
                        timeout_s = _OTHERS_S if answer.master is not None else timeout_s
        finally:
            for task in sorted(waiting, key=lambda task: places[task]):
                task.cancel()
        self.answered = frozenset(answers)
        return answers

    async def _ask_one(self, place: str) -> Leader | None:
        master = await self.master(place)
        if master is None:
            return None
        try:
            return await master.ask(GetLeader(), Leader, timeout_ms=ASK_MS)
        except AskError:
            self.forget(place)
            return None


async def find_leader(system: ActorSystem, masters: Sequence[str], timeout_ms: int) -> Leader:
    """Find the leading master; its `master` and `address` are set.

    Raises NoLeaderError when masters answer and none leads, NoMasterError when none answers, and
    SecretRefusedError when they refuse this process's secret, each naming the masters.
    """
    search = LeaderSearch(system, masters)
    end_s = system.loop.time() + timeout_ms / 1000
    pause_ms = FIRST_PAUSE_MS
    try:
        async with asyncio.timeout_at(end_s):
            while True:
                leader = await search.round()
                if leader is not None:
                    return leader
                require_secret(system, masters)
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, LAST_PAUSE_MS)
    except TimeoutError:
        raise no_leader(system, masters, search.answered) from None


def no_leader(system: ActorSystem, masters: Sequence[str], answered: frozenset[str]) -> DrivetrainError:
    """The error for a search without a leader, when only the masters in `answered` answered."""
    where = ", ".join(masters)
    if answered:
        silent = [master for master in masters if master not in answered]
        return NoLeaderError(
            "no master leads, because too few of them can reach each other",
            where=where,
            expected=f"{len(masters) // 2 + 1} of {len(masters)} masters",
            got=f"{len(answered)} answer" + (f"; silent: {', '.join(silent)}" if silent else ""),
            remedy="start the missing masters, or try again in a moment; applications keep running",
        )
    reasons = {getattr(trouble, "what", str(trouble)) for trouble in _troubles(system, masters)}
    return NoMasterError(
        "no master answers",
        where=where,
        got="; ".join(sorted(reasons)) or "no answer in time",
        remedy="check cluster.masters and that the masters run; `drivetrain local` starts a cluster on this "
        "machine",
    )


def require_secret(system: ActorSystem, masters: Sequence[str], *, by_all: bool = False) -> None:
    """Raise SecretRefusedError when a master, or all of them, refused this process's secret."""
    refusals = [
        trouble
        for trouble in _troubles(system, masters)
        if isinstance(trouble, HandshakeError) and trouble.reason == "secret"
    ]
    if len(refusals) >= (len(masters) if by_all else 1):
        raise SecretRefusedError(
            "the masters do not accept this process's secret",
            where=", ".join(masters),
            got=refusals[0].what,
            remedy="set DRIVETRAIN_SECRET, or cluster.secret-file, to the secret of the masters or to a key "
            "for this kind of process (drivetrain key)",
        )


def _troubles(system: ActorSystem, masters: Sequence[str]) -> list[Exception]:
    remote = system.provider
    if not isinstance(remote, Remote):
        return []
    troubles = (remote.connection_error("master", master) for master in masters)
    return [trouble for trouble in troubles if trouble is not None]


class LeaderLink:
    """An actor's link to the leader.

    Make it in `pre_start`, call `start`, and pass every message to `handle` first, which returns whether it
    was for the link. `on_found(term, master)` and `on_lost(why)` are called from within `handle`.
    """

    def __init__(
        self,
        context: Context,
        masters: Sequence[str],
        on_found: Callable[[int, ActorRef], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._context: Final = context
        self._search: Final = LeaderSearch(context.system, masters)
        self._on_found: Final = on_found
        self._on_lost: Final = on_lost
        self._term = 0
        self._leader: ActorRef | None = None
        self._address: str | None = None
        self._watched: Final[set[ActorRef]] = set()
        self._is_looking = False
        self._looks_again = False
        self._is_suspect = False
        self._pause_ms = FIRST_PAUSE_MS

    @property
    def leader(self) -> ActorRef | None:
        """The leading master, None while none is known."""
        return self._leader

    @property
    def term(self) -> int:
        """The highest term of any leader found; 0 before the first."""
        return self._term

    @property
    def search(self) -> LeaderSearch:
        """The search, to reach a particular master."""
        return self._search

    def start(self) -> None:
        """Start the search."""
        self._look()

    def handle(self, message: Message) -> bool:
        """Handle a message of the link; False means that it is for the actor."""
        match message:
            case CheckLeader():
                self._look()
            case LeaderSearchResult(leader, answered):
                self._known(leader, answered)
            case NotLeader():
                self.look_again()
            case Terminated(actor) if actor in self._watched:
                self._watched.remove(actor)
                self._search.forget_actor(actor)
                if actor == self._leader:
                    self._lost("it has ended, or is out of reach")
                    self.look_again()
            case _:
                return False
        return True

    def look_again(self) -> None:
        """Ask all masters who leads, now; calls `on_found` even if it is the same one."""
        self._is_suspect = True
        if self._is_looking:
            self._looks_again = True
        else:
            self._look()

    def _look(self) -> None:
        if self._is_looking:
            return
        self._is_looking = True
        self._looks_again = False
        self._context.timers.cancel("leader-look")
        self._context.pipe_to_self(self._ask(), lambda known: known, lambda _error: LeaderSearchResult(None))

    async def _ask(self) -> LeaderSearchResult:
        leader = self._leader
        if leader is not None and not self._is_suspect:
            confirmed = await self._search.confirm(Leader(self._term, self._address, leader))
            if confirmed is not None and confirmed.term == self._term and confirmed.master == leader:
                return LeaderSearchResult(confirmed)
            self._is_suspect = True
        found = await self._search.round()
        return LeaderSearchResult(found, len(self._search.answered))

    def _known(self, leader: Leader | None, answered: int) -> None:
        self._is_looking = False
        for master in self._search.met:
            self._watch(master)
        if leader is not None and leader.term < self._term:
            is_majority = answered > len(self._search.masters) // 2
            leader = leader if is_majority else None
        if leader is None or leader.master is None:
            self._lost("no master leads")
            # Jitter: all workers lose the leader at the same moment.
            pause_ms = int(self._pause_ms * self._context.system.rng.uniform(0.75, 1.25))
            self._pause_ms = min(2 * self._pause_ms, LAST_PAUSE_MS)
        else:
            pause_ms = CHECK_MS
            self._pause_ms = FIRST_PAUSE_MS
            if not self._looks_again:
                self._found(leader, leader.master)
        if self._looks_again:
            self._look()
        else:
            self._context.timers.start_once("leader-look", CheckLeader(), delay_ms=pause_ms)

    def _found(self, leader: Leader, master: ActorRef) -> None:
        is_new = master != self._leader or leader.term != self._term
        if is_new:
            self._watch(master)
            self._leader, self._address, self._term = master, leader.address, leader.term
        if is_new or self._is_suspect:
            self._is_suspect = False
            self._on_found(leader.term, master)

    def _lost(self, why: str) -> None:
        self._is_suspect = True
        if self._leader is not None:
            self._leader = self._address = None
            self._on_lost(why)

    def _watch(self, master: ActorRef) -> None:
        if master not in self._watched:
            self._watched.add(master)
            self._context.watch(master)
