"""`simulate`: which seeds run, how a failure is told, and that a seed means one trace in any process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from drivetrain.simulator import Simulation, SimulationError, simulate
from drivetrain.simulator.simulate import SEED_VARIABLE, SEEDS_VARIABLE, TRACE_VARIABLE


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (SEED_VARIABLE, SEEDS_VARIABLE, TRACE_VARIABLE):
        monkeypatch.delenv(variable, raising=False)


def seeds_run(*, seeds: int, at_most: int | None = None) -> list[int]:
    ran: list[int] = []

    @simulate(seeds=seeds, at_most=at_most)
    async def scenario(simulation: Simulation) -> None:
        ran.append(simulation.seed)

    scenario()
    return ran


def test_the_decorator_says_how_many_seeds_run() -> None:
    assert seeds_run(seeds=4) == [0, 1, 2, 3]


def test_the_environment_asks_for_more_seeds_up_to_the_tests_own_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SEEDS_VARIABLE, "7")
    assert seeds_run(seeds=4) == list(range(7))
    assert seeds_run(seeds=4, at_most=5) == list(range(5))


def test_the_environment_replays_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEEDS_VARIABLE, "7")
    monkeypatch.setenv(SEED_VARIABLE, "123")
    assert seeds_run(seeds=4) == [123]


def test_a_malformed_number_of_seeds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEEDS_VARIABLE, "many")
    with pytest.raises(SimulationError, match="not a number"):
        seeds_run(seeds=4)


def test_a_failure_names_its_seed_and_shows_the_end_of_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    @simulate(seeds=10)
    async def scenario(simulation: Simulation) -> None:
        simulation.record("just before")
        assert simulation.seed != 6, "six"

    with pytest.raises(AssertionError) as caught:
        scenario()
    notes = "\n".join(caught.value.__notes__)
    assert "DRIVETRAIN_SEED=6" in notes
    assert "just before" in notes
    assert "DRIVETRAIN_SEED=6" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["fixtures", "work"])
@simulate(seeds=2)
async def test_a_scenario_takes_the_tests_other_arguments(simulation: Simulation, word: str) -> None:
    assert word in {"fixtures", "work"}
    await simulation.sleep(1)


PROGRAM = """
import sys
from drivetrain.simulator import NetworkFaults, Simulation
sys.path.insert(0, {directory!r})
from busy_scenario import busy
simulation = Simulation({seed}, keep_trace=True)
simulation.run(busy)
sys.stdout.write(simulation.trace.text())
"""


def trace_of(seed: int, hash_seed: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(directory=os.path.dirname(__file__), seed=seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_a_seed_gives_the_same_trace_byte_for_byte_in_processes_that_hash_differently() -> None:
    one, other = trace_of(3, "1"), trace_of(3, "4242")
    assert len(one.splitlines()) > 100
    assert one == other
    assert trace_of(4, "1") != one
