"""Another application that reads a stream of one in a simulated cluster, and what must hold of that.

1. It gets every message of the stream once, from the beginning of its channel on, in the order of batches.
2. It starts over with another channel only when it wants to, or when its subscription is over.
3. When the application has finished, its reader has read all.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shell_engine import CARRIED, LogReader

from drivetrain.core.change.graph_version import SubscriptionRecord, subscription_id
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime import outside_producer
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.control_requests import Subscribed, SubscriptionRequest
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.simulator import Node
from drivetrain.spark.channel.source import channel_schema

if TYPE_CHECKING:
    from attempt_world import AttemptWorld

READER, SOURCE = "report-1", "hours"
ID = subscription_id(READER, SOURCE)


class Reader:
    """The other application: one process after the other; its state is what a committed batch has left."""

    def __init__(self, world: AttemptWorld, lives: int, stream: str) -> None:
        self.world, self.left, self.stream = world, lives, stream
        self.begun = self.lost = self.taken = 0
        self.is_told = False
        self.over: str | None = None
        self._start_over()

    def _start_over(self) -> None:
        self.note: Subscribed | None = None
        self.offset: dict[str, int] | None = None
        self.planned: dict[str, int] | None = None
        self.newest: dict[int, int] = {}  # the newest message of each source

    async def supervise(self) -> None:
        """There is always a process of it."""
        node = self.world.simulation.node("reader")
        while not self.world.is_over():
            if not node.is_alive:
                await node.start(self._serve)
            await self.world.simulation.sleep(0.3)

    async def _serve(self, node: Node) -> None:
        self.world._born(node)
        self.is_told = False
        self.reader: LogReader | None = None
        self.world.simulation.loop.create_task(self._run(), name="reader")

    async def _run(self) -> None:
        random = self.world.random
        while self.over is None:
            await asyncio.sleep(random.choice((0.02, 0.1, 0.4)))
            with suppress(UnavailableError):
                self._step()

    def rundir(self) -> RunDirectory | None:
        """The state directory of the other application, once it has begun."""
        state = next((self.world.place / "state").glob("shells-*/application.json"), None)
        if state is None:
            return None
        application = self.world.drawn.built(0)
        of = (application.name, application.naming_settings)
        return RunDirectory(str(self.world.place / "state"), *of)

    def _step(self) -> None:
        rundir, chance = self.rundir(), self.world.random.random()
        if rundir is None:
            return
        if self.note is None:
            self._subscribe(rundir)
        elif not self.is_told:
            outside_producer.noted(rundir, READER, SOURCE)
            self.is_told = True
        elif not self._is_in_force(rundir, self.note):
            self.lost += 1
            self._start_over()
        elif chance < 0.03 and self.left > 0:
            if chance < 0.015:
                record = SubscriptionRecord(ID, self.stream, READER, SOURCE, self.note.key)
                outside_producer.end(rundir, record)
            self._start_over()
        else:
            self._batch(self.note)

    def _subscribe(self, rundir: RunDirectory) -> None:
        if self.left <= 0:
            return
        wanted = SubscriptionRequest(READER, SOURCE, self.stream, starts_over=True)
        try:
            given = outside_producer.subscribed(rundir, wanted, in_cluster=True)
        except UserError as error:
            self.over = error.what
            return
        if isinstance(given, Subscribed):
            self.note, self.is_told, self.reader = given, False, None
            self.left, self.begun = self.left - 1, self.begun + 1

    def _is_in_force(self, rundir: RunDirectory, note: Subscribed) -> bool:
        in_force = rundir.versions.last_readable()
        assert in_force is not None
        return any((one.id, one.key) == (note.id, note.key) for one in in_force.subscriptions)

    def _batch(self, note: Subscribed) -> None:
        """Plan a batch, or read what was planned and commit that, as Spark does."""
        if self.reader is None:
            options = {"uri": note.channel, "subscriber": ID, "outside": "true", "maxRows": "6"}
            self.reader = LogReader(options, channel_schema(CARRIED))
        if self.offset is None:
            self.offset = self.reader.initialOffset()
        if self.planned is None:
            limit: Any = self.reader.getDefaultReadLimit()
            planned = self.reader.latestOffset(self.offset, limit)
            self.planned = planned if planned["entry"] > self.offset["entry"] else None
            return
        # While two versions hand over, a batch has the messages of one before those of the other.
        for row in sorted(self.reader.rows(self.offset, self.planned)):
            source = row // 1_000
            expected = self.newest.get(source, row - 1) + 1
            assert row == expected, f"the reader gets {row}, and {expected} is the next"
            self.newest[source] = row
            self.taken += 1
        self.offset, self.planned = self.planned, None

    def check_end(self) -> None:
        """The application has finished: whoever has a subscription finds the rest, and the end."""
        assert self.over is None or "has finished" in self.over, self.over
        rundir, note = self.rundir(), self.note
        if rundir is None or note is None or not self._is_in_force(rundir, note):
            return
        while self.planned is not None or self._has_more(note):
            self._batch(note)
        last = ChannelStore(note.channel).last()
        assert last is None or last.clock_ms >= FINAL_CLOCK_MS - 1, "the channel has no end"
        ends = {first // 1_000: first + count - 1 for first, count in self._sources()}
        for source, newest in self.newest.items():
            assert newest == ends[source], f"messages after {newest} are missing"

    def _has_more(self, note: Subscribed) -> bool:
        return self.offset is None or self.offset["entry"] < ChannelStore(note.channel).length()

    def _sources(self) -> list[tuple[int, int]]:
        drawn = self.world.drawn
        return [(drawn.first(name), count) for name, count in drawn.counts.items()]
