"""A simulated process on a machine of its own: start, crash, lose power, restart, freeze, thaw.

Design: the node outlives its process. Each start is a new `Life`; `main(node)` runs in it and builds
the process from `node.transport`, `node.disk`, `node.clock_ms` and `node.entropy`.
The scenario receives the result of `main`; tasks that it started run until the life ends.

Invariants:
1. At most one life is alive at a time.
2. A crash ends everything of the life at once; the disk keeps what `SimulatedDisk` guarantees.
3. A frozen process runs nothing and loses nothing, as after SIGSTOP; its machine still accepts connections.

Called by scenarios; created by `Simulation.node`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from random import Random
from typing import Any, Final, Protocol, TypeVar

from drivetrain.simulator.loop import START_S, SimulatedLoop
from drivetrain.simulator.network import SimulatedNetwork
from drivetrain.simulator.process_life import CURRENT_LIFE, Life
from drivetrain.simulator.simulated_disk import SimulatedDisk
from drivetrain.simulator.simulated_transport import SimulatedTransport
from drivetrain.simulator.simulation_errors import ProcessEndedError, SimulationError
from drivetrain.simulator.trace import Trace

T = TypeVar("T")

EPOCH_MS: Final = 1_700_000_000_000
"""The time of a wall clock without skew when a simulation starts."""


class Surroundings(Protocol):
    """The part of the simulation that its nodes use."""

    @property
    def seed(self) -> int:
        """The number from which all randomness is drawn."""

    @property
    def loop(self) -> SimulatedLoop:
        """The loop of all processes, with virtual time."""

    @property
    def trace(self) -> Trace:
        """The trace of the simulation."""

    @property
    def network(self) -> SimulatedNetwork:
        """The network of all nodes."""


class Node:
    """One simulated machine with one process; `name` is its host name too."""

    def __init__(self, simulation: Surroundings, name: str) -> None:
        self._simulation: Final = simulation
        self._random: Final = Random(f"{simulation.seed}:node:{name}")
        self._life: Life | None = None
        self._lives = 0
        self._waiting: list[tuple[Life, asyncio.Future[Any]]] = []
        self.name: Final = name
        self.clock_skew_ms = 0
        self.disk: Final = SimulatedDisk(
            simulation.loop, Random(f"{simulation.seed}:disk:{name}"), simulation.trace, name
        )
        self.transport: Final = SimulatedTransport(simulation.network, name)
        simulation.network.add_host(name)

    # ---- for the process

    @property
    def random(self) -> Random:
        """Seeded randomness for the process, where it would use its own in production."""
        return self._random

    def entropy(self, size: int) -> bytes:
        """Random bytes like those of `secrets.token_bytes`, from the seed."""
        return self._random.randbytes(size)

    def clock_ms(self) -> int:
        """The time of this machine's wall clock: milliseconds since 1970, off by `clock_skew_ms`."""
        return EPOCH_MS + self.clock_skew_ms + int((self._simulation.loop.time() - START_S) * 1000)

    # ---- for the scenario

    @property
    def is_alive(self) -> bool:
        """Whether a process runs here (also while it is frozen)."""
        return self._life is not None and self._life.is_alive

    @property
    def is_frozen(self) -> bool:
        """Whether the process is stopped as by SIGSTOP."""
        return self._life is not None and self._life.is_alive and self._life.is_frozen

    @property
    def life_number(self) -> int:
        """How often a process was started here."""
        return self._lives

    def start(self, main: Callable[[Node], Coroutine[Any, Any, T]]) -> asyncio.Future[T]:
        """Start a process that runs `main(node)`; awaiting the result waits until `main` has returned.

        Raises `SimulationError` when one runs already. The result fails with `ProcessEndedError` when the
        process ends before.
        """
        if self.is_alive:
            raise SimulationError(
                "a process runs on this node already", where=self.name, remedy="crash it first"
            )
        self._lives += 1
        self._life = Life(self.name, self._lives)
        self._simulation.network.set_power(self.name, is_on=True)
        self._record("starts")
        return self.run(lambda: main(self))

    def run(self, make: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Run `make()` inside the process and return its result to the scenario; or `ProcessEndedError`."""
        life = self._require_life()
        outcome: asyncio.Future[T] = self._simulation.loop.create_future()
        self._waiting = [entry for entry in self._waiting if not entry[1].done()]
        self._waiting.append((life, outcome))

        async def work() -> None:
            try:
                result = await make()
            except Exception as error:  # noqa: BLE001 - it belongs to the code that awaits the outcome
                if not outcome.done():
                    outcome.set_exception(error)
            else:
                if not outcome.done():
                    outcome.set_result(result)

        context = Context()
        context.run(CURRENT_LIFE.set, life)
        self._simulation.loop.create_task(work(), context=context, name=f"{life}")
        return outcome

    def crash(self) -> None:
        """End the process as SIGKILL does: peers see their connections reset, unsynced writes may be lost."""
        self._end("crashes")

    def lose_power(self) -> None:
        """End the process as a power cut does: as `crash`, but peers receive nothing until the next start."""
        self._simulation.network.set_power(self.name, is_on=False)
        self._end("loses power")

    def step_clock(self, by_ms: int) -> None:
        """Set this machine's wall clock forward, or back (negative); timers are not affected."""
        self.clock_skew_ms += by_ms
        self._record(f"sets its clock by {by_ms} ms")

    def freeze(self) -> None:
        """Stop the process as SIGSTOP does."""
        life = self._require_life()
        if not life.is_frozen:
            life.is_frozen = True
            self._record("is frozen")

    def thaw(self) -> None:
        """Let a frozen process continue, as SIGCONT does; no effect when it is not frozen."""
        life = self._require_life()
        if life.is_frozen:
            life.is_frozen = False
            self._record("thaws")
            self._simulation.loop.thaw(life)

    def _end(self, how: str) -> None:
        life = self._require_life()
        life.is_alive = False
        life.frozen.clear()
        self._record(how)
        self._simulation.network.end_life(life)
        self.disk.crash()
        for owner, outcome in self._waiting:
            if owner is life and not outcome.done():
                outcome.set_exception(
                    ProcessEndedError("the simulated process ended meanwhile", where=str(life))
                )
                outcome.exception()  # marked as retrieved: it need not be awaited
        self._waiting.clear()

    def _require_life(self) -> Life:
        if self._life is None or not self._life.is_alive:
            raise SimulationError("no process runs on this node", where=self.name, remedy="start one first")
        return self._life

    def _record(self, what: str) -> None:
        self._simulation.trace.write(self._simulation.loop.time(), self.name, f"{what} (life {self._lives})")
