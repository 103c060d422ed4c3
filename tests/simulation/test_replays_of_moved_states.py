"""Replays of an application whose state is in an object store, while workers and their disks are lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from moved_world import ClaimingSink, MovedWorld, moved_world
from shell_application import shown_by
from shell_disk import StandInSink, Target
from shell_engine import OF_A_VERSION
from test_attempts_under_faults import end_calmly
from test_moved_states import torment

from drivetrain.core.replay.replay import FIRST_LIFE
from drivetrain.crash_points import CrashPoint
from drivetrain.runtime.checkpoints.checkpoint_copy import decoded
from drivetrain.simulator import Simulation, simulate
from drivetrain.spark.connector.sink import SinkContext
from nightly_run import deaths

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # its process was killed


class ReplayedWorld(MovedWorld):
    """A world in which every message is processed again, in a new life, when a user asks for it.

    Once the store has a life, what was shown before belongs to earlier ones: the checks see the newest.
    """

    def __init__(self, simulation: Simulation, place: Path, deaths: Sequence[CrashPoint] | None) -> None:
        super().__init__(simulation, place, deaths)
        self.changer.changes_left = self.scaler.left = 0
        self.number, self.first_batch = FIRST_LIFE, 0
        self.former: list[dict[str, list[int]]] = []
        """What earlier lives have shown, by sink."""

    def sink(self, context: SinkContext) -> StandInSink:
        return ReplayedSink(self, context, self.target)

    def after_request(self, what: str, path: str) -> None:
        if what == "create" and "/checkpoints/" in path:
            manifest = decoded(self.store.objects[path], path).manifest
            if manifest is not None and manifest.life.number > self.number:
                self.number, self.first_batch = manifest.life.number, manifest.life.first_batch
                self.former.append(shown_by(self.target))
                self.target.show({id: (last, []) for id, (last, _) in self.target.shown().items()})
            elif manifest is not None and manifest.life.number < self.number:
                self.records.violations.append(f"life {manifest.life.number} continues after {self.number}")
        super().after_request(what, path)

    def take_clock(self, clock_ms: int | None) -> None:
        self.clock_ms = self.clock_ms if clock_ms is None else clock_ms

    def hear_clock(self, clock_ms: int | None) -> None:
        """Does nothing: a new life's clock begins where the replay does."""

    def ask(self) -> None:
        """Replay the application from the beginning, whether it runs or not."""
        self.kill_app_master()
        self.spec = msgspec.structs.replace(self.spec, replay_from_ms=0)
        self.registry = self.clock_ms = None

    def check_former(self) -> None:
        """No earlier life has shown a message twice, or one that nobody sent."""
        wanted = self.drawn.wanted()
        for shown in self.former:
            for id, rows in shown.items():
                assert max(Counter(rows).values(), default=1) == 1, f"{id} showed a message twice: {rows}"
                assert set(rows) <= set(wanted[id])


class ReplayedSink(ClaimingSink):
    """Sorts what it publishes by lives: an earlier one may have prepared results that nobody has seen."""

    def __init__(self, world: ReplayedWorld, context: SinkContext, target: Target) -> None:
        super().__init__(context, target)
        self.world = world

    def publish(self, _txid: int, last: Mapping[str, int], all: Mapping[str, StandInSink]) -> dict[str, int]:
        shown, told = self.target.shown(), {}
        late: dict[str, list[int]] = {}
        for id, sink in all.items():
            before, rows = shown.get(id, (-1, []))
            own: list[int] = []
            for batch in (b for b in sink.prepared() if before < b <= last.get(id, -1)):
                added = json.loads((sink.waiting / str(batch)).read_text())
                (late.setdefault(id, []) if batch < self.world.first_batch else own).extend(added)
            shown[id], told[id] = (max(before, last.get(id, -1)), rows + own), len(own)
        self.target.show(shown)
        for id, rows in late.items():
            self.world.former[-1].setdefault(id, []).extend(row % OF_A_VERSION for row in rows)
        for id, sink in all.items():
            for batch in [b for b in sink.prepared() if b <= shown[id][0]]:
                sink.abort(batch)
        return told


@simulate(seeds=3, at_most=1000)
async def test_a_new_life_shows_every_message_once_whatever_happens_to_the_workers(
    simulation: Simulation,
) -> None:
    await scenario(simulation)


POINTS = [CrashPoint.COPY_UPLOADED, CrashPoint.COPY_NAMED, CrashPoint.AFTER_RECORD]


@pytest.mark.parametrize("points", deaths(POINTS, 2, 2), ids="+".join)
@simulate(seeds=1, at_most=100)
async def test_a_replay_begins_though_processes_die_between_two_effects(
    simulation: Simulation, points: list[CrashPoint]
) -> None:
    world = await scenario(simulation, points)
    assert world.kills, "processes were to die there"


async def scenario(simulation: Simulation, points: list[CrashPoint] | None = None) -> ReplayedWorld:
    """Run an application, replay it once or twice while much happens, and let it end."""
    with moved_world(simulation, points, ReplayedWorld) as world:
        random = simulation.random
        await world.start()
        simulation.loop.create_task(world.lead(), name="lead")
        torments = []
        for _ in range(random.randrange(1, 3)):
            copied = len(world.copied)
            for _ in range(random.choice((0, 20, 100))):
                await simulation.sleep(0.1)
                world.check()
                if len(world.copied) > copied and random.random() < 0.1:
                    break
            world.ask()
            for _ in range(random.choice((0, 2, 5)) * (points is None)):
                await simulation.sleep(random.choice((0.0, 0.3, 2.0)))
                world.check()
                torments.append(simulation.loop.create_task(torment(world, random.randrange(10))))
        await end_calmly(world, torments)
        world.check_former()
        assert world.spec.replay_from_ms is None
        assert world.number > FIRST_LIFE or not world.former
        return world
