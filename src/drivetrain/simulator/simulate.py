"""`simulate`: a test that runs with many seeds, and repeats one.

Design: the decorated scenario becomes an ordinary test function, without the `simulation` argument, that
runs every seed in turn and fails with the first that fails. The decorator has the number of seeds for every
day, `DRIVETRAIN_SEEDS` that of a nightly run, and `DRIVETRAIN_SEED` repeats a single one.

Invariants:
1. The seeds of a test are 0, 1, 2, …; a test's n-th seed is the same everywhere.
2. `DRIVETRAIN_SEED` overrides `DRIVETRAIN_SEEDS`, which overrides the decorator, but not its limit
   `at_most`.

Called by tests, those of Drivetrain's users included.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from drivetrain.actor.remote.wire import describe as describe_frame
from drivetrain.simulator.network import Describe
from drivetrain.simulator.simulation import Simulation
from drivetrain.simulator.simulation_errors import SimulationError

SEEDS_VARIABLE: Final = "DRIVETRAIN_SEEDS"
SEED_VARIABLE: Final = "DRIVETRAIN_SEED"
TRACE_VARIABLE: Final = "DRIVETRAIN_TRACE"

Scenario = Callable[..., Coroutine[Any, Any, None]]


def simulate(
    *,
    seeds: int = 100,
    at_most: int | None = None,
    until_s: float = 3_600.0,
    describe: Describe = describe_frame,
) -> Callable[[Scenario], Callable[..., None]]:
    """Turn `async def scenario(simulation, ...)` into a test with many seeds.

    `seeds` is how many unless `DRIVETRAIN_SEEDS` is set, `at_most` limits that variable (for long scenarios),
    `until_s` is the virtual time that each seed may take, `describe` turns frames into
    text for the trace. `DRIVETRAIN_SEED=n` runs seed n only and, with `DRIVETRAIN_TRACE=file`, writes its
    whole trace there. Further arguments of the scenario are the test's (fixtures, parameters).

    >>> @simulate(seeds=3)
    ... async def test_time_passes_without_waiting(simulation):
    ...     await simulation.sleep(3000)
    ...     assert simulation.now_ms == 3_000_000
    >>> test_time_passes_without_waiting()
    """

    def decorate(scenario: Scenario) -> Callable[..., None]:
        @functools.wraps(scenario)
        def test(*args: Any, **kwargs: Any) -> None:
            def run(seed: int) -> None:
                trace_file = os.environ.get(TRACE_VARIABLE)
                simulation = Simulation(
                    seed, until_s=until_s, describe=describe, keep_trace=trace_file is not None
                )
                try:
                    simulation.run(lambda simulation: scenario(simulation, *args, **kwargs))
                except BaseException:
                    # A test runner shows the notes of the exception; others show at least this line.
                    sys.stderr.write(f"{scenario.__qualname__} failed with {SEED_VARIABLE}={seed}\n")
                    raise
                finally:
                    if trace_file is not None:
                        with open(trace_file, "w", encoding="utf-8") as file:
                            file.write(simulation.trace.text())

            run_seeds(run, chosen_seeds(seeds, at_most))

        signature = inspect.signature(scenario)
        _, *rest = signature.parameters.values()
        # pytest reads the arguments from here; the simulation is not a fixture.
        test.__signature__ = signature.replace(parameters=rest, return_annotation=None)  # type: ignore[attr-defined]
        del test.__wrapped__
        return test

    return decorate


def chosen_seeds(seeds: int, at_most: int | None = None) -> Iterable[int]:
    """The seeds to run: `DRIVETRAIN_SEED` alone, else as many as `DRIVETRAIN_SEEDS` or `seeds`."""
    single = _whole_number(SEED_VARIABLE)
    if single is not None:
        return (single,)
    asked = _whole_number(SEEDS_VARIABLE)
    count = seeds if asked is None else asked
    return range(count if at_most is None else min(count, at_most))


def run_seeds(run: Callable[[int], None], seeds: Iterable[int]) -> None:
    """Call `run` with each seed; collects the garbage of each run, and only that, in between.

    What a test process has frozen itself stays frozen; the first collection is short only then.
    """
    is_frozen_already = gc.get_freeze_count() > 0
    gc.collect()
    # Without this, every collection would walk everything that the test process has imported.
    gc.freeze()
    try:
        for seed in seeds:
            run(seed)
            gc.collect()
    finally:
        if not is_frozen_already:
            gc.unfreeze()


def _whole_number(variable: str) -> int | None:
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isdigit():
        raise SimulationError(
            "not a number of seeds", where=variable, expected="a whole number", got=repr(text)
        )
    return int(text)
