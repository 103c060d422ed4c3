"""The cores that transcripts drive, and the names that the texts of their events may use."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from drivetrain.core.checkpoint import coordinator, transaction
from drivetrain.core.checkpoint.coordinator import CheckpointCoordinator, CheckpointPolicy, Emit, Persist
from drivetrain.core.checkpoint.transaction import ActionAcked, Command, Snapshot, Transaction
from drivetrain.core.clock import clock_service
from drivetrain.core.clock.clock_service import ClockedFragment, ClockService, FragmentsChanged
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.cluster import election_events
from drivetrain.core.cluster.election import Election
from drivetrain.core.cluster.election_events import MasterAddress, Term
from drivetrain.core.flow.flow import ReportLoss, SendAck, SendAckRequest, SentEntry, Window
from drivetrain.core.flow.flow_receiver import FlowReceiver
from drivetrain.core.flow.flow_sender import FlowSender


class ElectionPlayer:
    """Master a of the masters a, b and c, with a lease of a second."""

    def __init__(self, *, term: int = 0, voted_for: str | None = None, seed: int = 1) -> None:
        masters = [MasterAddress(name) for name in "abc"]
        vote = None if voted_for is None else MasterAddress(voted_for)
        self.core = Election(
            masters[0],
            masters,
            lease_ms=1_000,
            random=Random(seed),
            now_ms=0,
            term=Term(term),
            voted_for=vote,
        )
        self.now_ms = 0

    def names(self) -> Mapping[str, Any]:
        return {**vars(election_events), **{name: MasterAddress(name) for name in "abc"}}

    def step(self, event: Any, now_ms: int) -> list[Any]:
        self.now_ms = now_ms
        effects = self.core.step(event, now_ms)
        self.core.check()
        return list(effects)

    def state(self) -> str:
        leads = ", leads" if self.core.leads(self.now_ms) else ""
        known = f", knows leader {self.core.leader}" if self.core.leader is not None else ""
        return f"{self.core.role.value} in term {self.core.term}{leads}{known}"


class CheckpointPlayer:
    """The coordinator of fragments a and b, with a checkpoint each second."""

    def __init__(self, saved: str | None = None, fragments: str = "ab") -> None:
        given = None if saved is None else eval(saved, vars(transaction))
        self.core = CheckpointCoordinator(
            fragments, CheckpointPolicy(interval_ms=1_000, timeout_ms=30_000), given
        )
        self.stored: Transaction | None = given
        self.told: Command | None = None

    def names(self) -> Mapping[str, Any]:
        return {**vars(transaction), **vars(coordinator), "acked": self._acked}

    def _acked(self, fragment: str, snapshot: Snapshot | None = None, **changes: Any) -> ActionAcked:
        """The answer of a fragment to the last command."""
        assert self.told is not None
        given = {name: getattr(self.told, name) for name in ("action", "txid", "round", "life")}
        return ActionAcked(fragment=fragment, snapshot=snapshot, **{**given, **changes})

    def step(self, event: Any, now_ms: int) -> list[Any]:
        effects = self.core.step(event, now_ms)
        self.core.check()
        for effect in effects:
            if isinstance(effect, Persist):
                self.stored = effect.transaction
            elif isinstance(effect, Emit):
                self.told = effect.command
        return list(effects)

    def state(self) -> str:
        of = self.core.transaction
        waits = ", ".join(sorted(self.core.waits_for))
        return f"{of.phase.name} of {of.txid}" + (f", waits for {waits}" if waits else "")


class FlowPlayer:
    """Both ends of a channel; `word` is the last message that either end sent."""

    def __init__(self, *, entries: int = 3, grace_ms: int = 3_000) -> None:
        self.sender = FlowSender(
            Window(rows=0, bytes=0, entries=entries), incarnation=1, position=0, entries=[]
        )
        self.receiver = FlowReceiver(life=(0, 1, 0), position=0, grace_ms=grace_ms)
        self.now_ms = 0
        self.word: Any = None
        self.log: dict[int, SentEntry] = {}

    def names(self) -> Mapping[str, Any]:
        return {
            "append": self._append,
            "take": self._take,
            "carry": self._carry,
            "tick": self._tick,
            "lose": self._lose,
        }

    def _append(self, number: int, rows: int = 10) -> Any:
        """The producer appends an entry."""
        entry = self.log[number] = SentEntry(number, rows, rows * 100, number * 7 + 1)
        return lambda now_ms: self.sender.appended(entry, now_ms)

    def _take(self, start: int, end: int, rows: int) -> Any:
        """The subscriber commits a batch."""
        logged = sum(self.log[number].rows for number in range(start, end))
        return lambda now_ms: self.receiver.taken(start, end, rows, logged)

    def _carry(self) -> Any:
        """Deliver the last message to the other end."""
        word = self.word
        if isinstance(word, SendAckRequest):
            seen = [self.log.get(number) for number in self.receiver.wanted(word.request)]
            return lambda now_ms: self.receiver.requested(word.request, seen, now_ms)
        assert isinstance(word, SendAck), "there is a word under way"
        return lambda now_ms: self.sender.acknowledged(word.ack, now_ms)

    def _tick(self) -> Any:
        """Time passes for the producer."""
        return self.sender.ticked

    def _lose(self, number: int) -> Any:
        """An entry disappears from the log."""
        del self.log[number]
        return lambda _now_ms: []

    def step(self, event: Any, now_ms: int) -> list[Any]:
        effects = list(event(now_ms))
        self.sender.check()
        self.receiver.check()
        for effect in effects:
            if isinstance(effect, SendAckRequest | SendAck):
                self.word = effect
            assert isinstance(effect, SendAckRequest | SendAck | ReportLoss)
        return effects

    def state(self) -> str:
        rows, _, entries = self.sender.unacknowledged
        full = ", full" if self.sender.is_full else ""
        lost = ", lost" if self.receiver.loss is not None else ""
        taken = f"taken up to {self.receiver.position}{lost}"
        return f"unacknowledged: {entries} entries, {rows} messages{full}; {taken}"


class ClockPlayer:
    """The clock of fragments a, b after a, and c after b; it is persisted at most once a second."""

    def __init__(self, start_clock_ms: int | None = None) -> None:
        self.core = ClockService(0, start_clock_ms, persist_ms=1_000, stall_ms=60_000)
        line = (ClockedFragment("a"), ClockedFragment("b", ("a",)), ClockedFragment("c", ("b",)))
        self.core.step(FragmentsChanged(line), 0)

    def names(self) -> Mapping[str, Any]:
        return {**vars(clock_service), "END": FINAL_CLOCK_MS}

    def step(self, event: Any, now_ms: int) -> list[Any]:
        effects = self.core.step(event, now_ms)
        self.core.check()
        return list(effects)

    def state(self) -> str:
        return f"clock {self.core.clock_ms}, lowest {self.core.lowest_ms}"
