"""The application that the simulations of shells run, drawn at random, and the results that its sinks must
show."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from shell_disk import Target
from shell_engine import DISORDER_MS, OF_A_VERSION, StandInSource, is_bad, time_of_ms

from drivetrain.api import Application, sinks, sources
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.crash_points import CrashPoint
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.session.offset_log import batch_numbers, committed, entries_after, read_offsets

OF_A_CHANGE = (
    CrashPoint.BEFORE_VERSION,
    CrashPoint.AFTER_VERSION,
    CrashPoint.BEFORE_OUTCOME,
    CrashPoint.AFTER_OUTCOME,
)
"""Points that an application reaches only if it changes while it runs."""

OF_HANDOVERS = (CrashPoint.HANDOVER_PAUSED, CrashPoint.HANDOVER_RECORDED)
"""Points that are reached only in a cluster, when a version takes effect at an event time."""

OF_FRAGMENTS = (CrashPoint.CHANNEL_BEGINS, CrashPoint.CHANNEL_ENDS, CrashPoint.FRAGMENT_LEAVES)
"""Points that an application reaches only if its fragments start and leave while it runs."""

OF_HISTORIES = (CrashPoint.HISTORY_PART, CrashPoint.HISTORY_PLACED)
"""Points that an application reaches only if its new fragment also gets earlier messages."""

OF_KAFKA = (CrashPoint.IN_TRANSACTION, CrashPoint.AFTER_TRANSACTION)
"""Points of Kafka's transactions, which the simulated sinks do not have."""

OF_READERS = (CrashPoint.SUBSCRIPTION_ASKED,)
"""Points that only a process of another application reaches, which reads from this one."""

EXTRA = "extra"
"""The sink of the fragment that comes and goes."""


class DrawnApplication:
    """A chain, a fork, or a join, of two to four fragments, in the state after some number of the user's
    changes.

    The branches and trunks of some fragments differ from change to change; the code of every third change
    fails. With `is_growing` it has one more fragment after some changes, and not after others. With
    `has_history` that fragment reads from the source's fragment, and stays once it exists.
    """

    def __init__(
        self,
        random: Random,
        *,
        is_growing: bool = False,
        has_history: bool = False,
        is_long: bool = False,
        trunks: float = 0.3,
    ) -> None:
        """`trunks` is the probability that a change concerns a trunk; `is_long`: with many messages."""
        self.has_history = has_history
        self.is_long = is_long or has_history
        self.from_ms = random.choice((0, random.randrange(10_000, 13_000))) if has_history else 0
        self._shape, self._seed = random.choice(("chain", "fork", "join")), random.getrandbits(64)
        self.is_growing = is_growing
        self.trunks = 0 if has_history else trunks  # a query that restarts has no history then
        """The probability that a change concerns the trunk of a source's fragment."""
        self.counts: dict[str, int] = {}
        """How many messages each source has."""
        self.plan: Plan = make_plan(self.built(0).graph())
        nodes = self.plan.graph.nodes
        self.sinks = {
            f.id: [id for id in f.branches if nodes[id].operation.target is not None]
            for f in self.plan.fragments
        }
        """The sinks of each fragment."""

    def built(self, change: int) -> Application:
        drawn, app = Random(self._seed), Application("shells")
        differs, trunks = Random(self._seed + change), Random(self._seed - change)

        def kept() -> str:
            """The condition of a filter, which tells the simulated branches what to do."""
            shown = change if change and differs.random() < 0.8 else 0
            return f"v >= -{shown}"

        def read(name: str) -> Any:
            self.counts[name] = drawn.randrange(*(60, 200) if self.is_long else (0, 60))
            trunk = change if change and trunks.random() < self.trunks else 0
            made = app.read(sources.generate(rows=1 + trunk), name=name)
            made = made.select(ts="timestamp_millis(id)", v="id")
            return made.event_time("ts", max_disorder=f"{DISORDER_MS} ms", name=f"{name}-timed")

        timed = read("first")
        front = timed.filter("v >= 0", name="front") if self.has_history else timed
        stream = front.cut()
        if self.is_growing:
            middle = stream.filter(f"v >= -{change}", name="middle")
            middle.sink(sinks.none(), name="out")
            middle.sink(sinks.none(), name="also")
            if self.has_more(change):
                tapped = (timed if self.has_history else middle).filter("v >= 0", name="tap").cut()
                shown = f"v >= -{change}" if self.has_history else kept()
                tapped.filter(shown, name="more").sink(sinks.none(), name=EXTRA)
        elif self._shape == "chain":
            last = stream.filter(kept(), name="middle").cut().filter(kept(), name="last")
            last.sink(sinks.none(), name="out")
            last.sink(sinks.none(), name="also")
        elif self._shape == "fork":
            left = stream.filter(kept(), name="left").cut()
            left.filter(kept(), name="behind").sink(sinks.none(), name="out")
            stream.filter(kept(), name="right").sink(sinks.none(), name="other")
        else:
            both = stream.union(read("second").cut(), name="both").filter(kept(), name="all")
            both.sink(sinks.none(), name="out")
            both.sink(sinks.none(), name="also")
        return app

    def has_more(self, change: int) -> bool:
        """Whether the application has one more fragment after this number of changes."""
        if self.has_history:
            return change > 0
        return change > 0 and Random(self._seed ^ change).random() < 0.6

    def fitting(self, *, has_more: bool) -> Application:
        """The application of a user whose file is lost: code that works, with these fragments."""
        changes = (change for change in range(1000) if not is_bad(change))
        return self.built(next(change for change in changes if self.has_more(change) is has_more))

    def source(self, id: str, draw: Callable[[], int]) -> StandInSource:
        """A source, by its processor's id; `draw` returns how many messages a batch takes."""
        return StandInSource(self.first(id), self.counts[id], draw)

    def first(self, source: str) -> int:
        """The first message of a source."""
        return 1_000 * (1 + list(self.counts).index(source))

    def wanted(self) -> dict[str, Counter[int]]:
        """The messages that every sink must have shown at the end."""
        found = Counter(
            value
            for id, count in self.counts.items()
            for value in range(self.first(id), self.first(id) + count)
        )
        return {n.id: found for n in self.plan.graph.nodes.values() if n.operation.target is not None}

    def check_extra(self, target: Target, rolled_back: set[int]) -> None:
        """Check that the fragment that comes and goes showed the batches of versions with it, each whole
        and once.

        It may have shown some batches of versions that were rolled back.
        """
        shown = target.shown()
        extra = [row % OF_A_VERSION for row in shown.get(EXTRA, (0, []))[1]]
        assert len(extra) == len(set(extra)), "a message is shown twice"
        by_change = {row % OF_A_VERSION: row // OF_A_VERSION for row in shown.get("out", (0, []))[1]}
        sure = {row for row, change in by_change.items() if change not in rolled_back}
        wanted = {row for row in sure if self.has_more(by_change[row])}
        assert wanted == sure & set(extra), (
            f"missed: {sorted(wanted - set(extra))}, too much: {sorted(set(extra) & sure - wanted)}"
        )

    def check_history(self, target: Target, rolled_back: set[int], *, has_more: bool) -> int:
        """Check that the new fragment showed every message from FROM on, once; returns how many.

        Messages that it showed in versions that were rolled back are removed.
        """
        shown = list(target.shown().get(EXTRA, (0, []))[1])
        rows = [row % OF_A_VERSION for row in shown if row // OF_A_VERSION not in rolled_back]
        assert len(rows) == len(set(rows)), f"a message is shown twice: {sorted(rows)}"
        if not has_more:
            return 0
        wanted = {row for row in self.wanted()["out"] if time_of_ms(row) >= self.from_ms}
        taken = {row % OF_A_VERSION for row in shown}
        assert wanted == taken & wanted, f"missed: {sorted(wanted - taken)}"
        return len(wanted)

    # -- what must hold ------------------------------------------------------------------------------

    def check_shown(self, target: Target, *, together: bool) -> int:
        """Check that nothing is shown twice, and nothing unknown; `together`: all sinks show the same.

        Returns how many rows are shown.
        """
        shown, wanted = shown_by(target), self.wanted()
        for id, rows in shown.items():
            if self.has_history and id == EXTRA:
                continue  # a version that was rolled back may have shown some: `check_history`
            assert max(Counter(rows).values(), default=1) == 1, f"{id} shows a message twice: {rows}"
            assert set(rows) <= set(wanted.get(id, wanted["out"])), f"{id} shows what nobody sent"
        if together:
            sets = {id: frozenset(shown.get(id, [])) for id in wanted}
            assert len(set(sets.values())) == 1, f"the sinks show different cuts: {sets}"
        return sum(map(len, shown.values()))

    def check_end(self, target: Target) -> None:
        """Check that every message is shown, once."""
        shown = {id: Counter(rows) for id, rows in shown_by(target).items()}
        assert {id: shown.get(id, Counter()) for id in self.wanted()} == self.wanted()

    def clock_bound_ms(self, state: Path) -> int:
        """The largest clock that is correct for what every source's fragment has committed."""
        bounds = []
        for fragment in self.plan.fragments:
            for id in [id for id in fragment.processors if id in self.counts]:
                checkpoint = state / "fragments" / fragment.id / "checkpoint"
                batch = committed(checkpoint)
                _, offsets = read_offsets(checkpoint / "offsets" / str(batch)) if batch >= 0 else ({}, [])
                taken = sum(json.loads(offset or "{}").get("n", 0) for offset in offsets)
                newest = max((time_of_ms(self.first(id) + n) for n in range(taken)), default=NO_CLOCK_MS)
                bounds.append(FINAL_CLOCK_MS if taken == self.counts[id] else newest - DISORDER_MS)
        return min(bounds)

    # -- damage --------------------------------------------------------------------------------------

    def harm_state(self, state: Path, random: Random) -> bool:
        """Delete a fragment's checkpoint, or the end of it; returns whether there was anything to delete."""
        fragment = random.choice([f.id for f in self.plan.fragments])
        checkpoint = state / "fragments" / fragment / "checkpoint"
        known = sorted(batch_numbers(checkpoint / "commits"))
        if not known:
            return False
        if random.random() < 0.5:
            shutil.rmtree(checkpoint)
        else:
            (checkpoint / "offsets" / str(known[-1])).unlink(missing_ok=True)
        return True

    def harm_channel(self, state: Path, random: Random) -> bool:
        """Damage a segment or an entry that was not read yet; returns whether there was one."""
        channel = random.choice(self.plan.channels)
        store = ChannelStore(str(state / "channels" / channel.id))
        numbers = store.numbers()
        # Entries that the subscriber has taken are not repaired, even if they are not trimmed yet.
        consumer = next(f for f in self.plan.fragments if f.id == channel.consumer_fragment)
        checkpoint = state / "fragments" / consumer.id / "checkpoint"
        newest = committed(checkpoint)
        if newest >= 0 and not (checkpoint / "offsets" / str(newest)).exists():
            return False
        position = entries_after(checkpoint, newest, consumer.inputs).get(channel.id, 0)
        unread = [n for n in numbers if n >= position]
        if not unread:
            return False
        try:
            entry = store.read_entry(random.choice(unread))
        except DrivetrainError:
            return False
        paths = [segment.path for segment in entry.segments] or [f"log/{entry.number:020d}.json"]
        file = state / "channels" / channel.id / random.choice(paths)
        if not file.exists():
            return False
        if random.random() < 0.5:
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-3])
        return True


def check_versions(target: Target) -> None:
    """Check that the sinks of a fragment show each message with one version, never one whose code fails."""
    shown = {id: rows for id, (_, rows) in target.shown().items()}
    for id, rows in shown.items():
        assert not any(is_bad(row // OF_A_VERSION) for row in rows), f"{id} shows what cannot be computed"
    if {"out", "also"} <= shown.keys():
        out, also = set(shown["out"]), set(shown["also"])
        both = {row % OF_A_VERSION for row in out} & {row % OF_A_VERSION for row in also}
        differing = {row for row in out ^ also if row % OF_A_VERSION in both}
        assert not differing, f"a batch was shown by two versions: {sorted(differing)}"


def shown_by(target: Target) -> dict[str, list[int]]:
    """The messages that the sinks show, without the versions."""
    return {id: [row % OF_A_VERSION for row in rows] for id, (_, rows) in target.shown().items()}
