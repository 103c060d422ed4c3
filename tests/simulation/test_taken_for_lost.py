"""A process that was taken for lost runs on while another continues its application from a copy."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from random import Random

import pytest
from shell_process import Process
from shell_world import STEPS, World, simulated

from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.errors import UnavailableError
from drivetrain.runtime.checkpoints.checkpoint_copy import TakenOverError
from drivetrain.simulator.simulate import SEED_VARIABLE, chosen_seeds, run_seeds
from drivetrain.spark.run import preparing

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # its process is let go
MOST_STEPS = 4_000
"""What the former process does at most while its successor waits for it."""


class Former:
    """The process that was taken for lost: it runs on whenever its successor asks the store for something."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.process = Process(world, "former")
        self.is_over = False
        self.was_taken_over = False
        self._is_its_turn = False

    def run_until_copied(self) -> None:
        """Run until a checkpoint of it is in the store, and some more."""
        assert self.world.store is not None
        self.is_over = self.process.run(1) is not None
        while not self.is_over and not any("/checkpoints/" in name for name in self.world.store.objects):
            self.run_on(1)
        self.run_on(self.random.randrange(300))

    def at_request(self, _what: str, path: str) -> None:
        """A request of the successor's: the former process may be faster; it sleeps through its lease."""
        if not self._is_its_turn and "/leases/" not in path and self.random.random() < 0.5:
            self.run_on(self.random.choice((1, 20, 200)))

    def run_on(self, steps: int) -> None:
        """Run for so many steps, or until it ends."""
        self._is_its_turn, clock_ms = True, self.world.clock_ms
        self.world.clock_ms = -(10**18)  # its successor's clock is another one
        try:
            for _ in range(steps):
                if self.is_over:
                    break
                self.is_over = self.process.step() is not None
        except TakenOverError:
            self.is_over = self.was_taken_over = True
        finally:
            self._is_its_turn, self.world.clock_ms = False, clock_ms


def continued(successor: Process, former: Former) -> RunOutcome | None:
    """Continue the application; the user tries again if the former process is too fast."""
    while True:
        try:
            return successor.run(STEPS)
        except UnavailableError as error:
            if error.what != "the newest checkpoint is replaced faster than it is read":
                raise
            successor.rundir.release()
            former.run_on(MOST_STEPS)


def taken_for_lost(seed: int, *, is_remote: bool) -> Former:
    """Run one application in two processes; raises what is wrong."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        world = World(seed, Path(place), deaths=(), is_copied=True, is_remote=is_remote)
        assert world.store is not None
        former, successor = Former(world, Random(-seed)), Process(world)
        try:
            with simulated(world) as patched:
                world.is_up = True
                former.run_until_copied()
                world.store.before = former.at_request
                patched.setattr(preparing, "wait_for_predecessor", lambda: former.run_on(MOST_STEPS))
                world.clock_ms = -(10**18)
                assert continued(successor, former) is RunOutcome.FINISHED, "the run does not end"
        except BaseException as error:
            error.add_note(f"run it again alone with {SEED_VARIABLE}={seed}")
            sys.stderr.write(f"failed with {SEED_VARIABLE}={seed}\n")
            raise
        finally:
            former.process.release()
            successor.release()
        shutil.rmtree(world.directory / "former")
        world.check_end()
        return former


@pytest.mark.parametrize("is_remote", [False, True], ids=["copied", "remote"])
def test_a_process_that_is_taken_for_lost_while_it_runs_loses_no_message_and_shows_none_twice(
    is_remote: bool,
) -> None:
    """A state that `is_remote` has a lease, which the process lets expire."""
    formers: list[Former] = []
    run_seeds(
        lambda seed: formers.append(taken_for_lost(seed, is_remote=is_remote)),
        chosen_seeds(3, at_most=1000),
    )
    assert len(formers) == 1 or sum(former.was_taken_over for former in formers) > len(formers) / 4
