"""Twelve machines want the state of one application in an object store: it has one history, and a process
that renews its lease is left alone.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest
from contending_machines import CURRENT, Contention

from drivetrain.simulator.simulate import chosen_seeds, run_seeds

MACHINES = 12


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines have the time of their world."""
    monotonic_s, sleep = time.monotonic, time.sleep

    def now_s() -> float:
        machine = getattr(CURRENT, "machine", None)
        return monotonic_s() if machine is None else float(machine.world.now_s)

    def wait(duration_s: float) -> None:
        machine = getattr(CURRENT, "machine", None)
        (sleep if machine is None else machine.sleep)(duration_s)

    monkeypatch.setattr(time, "monotonic", now_s)
    monkeypatch.setattr(time, "sleep", wait)


@pytest.mark.usefixtures("virtual_time")
def test_of_twelve_machines_one_decides_whoever_sleeps_or_dies_in_between() -> None:
    worlds: list[Contention] = []

    def contend(seed: int) -> None:
        memory = Path("/dev/shm")
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
            world = Contention(seed, Path(place), MACHINES)
            worlds.append(world)
            world.run(until_s=600.0)

    run_seeds(contend, chosen_seeds(5, at_most=2000))
    assert all(world.decided for world in worlds), "nothing was decided"
    if len(worlds) > 1:
        assert sum(world.refused for world in worlds) > len(worlds), "few were refused"
        assert sum(world.taken_over for world in worlds) > len(worlds), "few woke up too late"
        assert sum(world.successions for world in worlds) > len(worlds)
