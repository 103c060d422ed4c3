"""One simulated run: a seed, a loop on virtual time, a network, nodes, and a trace of its events.

Design: everything random comes from generators derived from the seed, one per purpose, so that a change in
one part of a scenario does not reshuffle the others. While a simulation runs, cyclic garbage is not
collected (finalisers would run at moments that the seed does not decide), and the log lines of the
`drivetrain` loggers go into the trace with the name of the process that wrote them.

Invariants:
1. Same seed, same scenario: same trace, byte for byte, in any process on any machine.
2. Every failure ends in an exception that carries the seed and the end of the trace.
3. A task or callback whose failure is not awaited fails the simulation.

Called by `simulate`, and directly for a single run.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random
from typing import Any, Final, TypeVar

from drivetrain.actor.remote.wire import describe as describe_frame
from drivetrain.simulator.loop import START_S, SimulatedLoop
from drivetrain.simulator.network import Describe, SimulatedNetwork
from drivetrain.simulator.node import Node
from drivetrain.simulator.process_life import CURRENT_LIFE
from drivetrain.simulator.simulation_errors import BackgroundFailureError, SimulationError
from drivetrain.simulator.trace import Trace

T = TypeVar("T")

_STORY_LINES: Final = 40


class Simulation:
    """One run with one seed; use it for one `run` only.

    `until_s` limits its virtual time, `describe` turns frames into text for the trace, and `keep_trace`
    keeps all lines of the trace instead of the last ones.
    """

    def __init__(
        self,
        seed: int,
        *,
        until_s: float = 3_600.0,
        describe: Describe = describe_frame,
        keep_trace: bool = False,
    ) -> None:
        self.seed: Final = seed
        self.random: Final = Random(f"{seed}:scenario")
        self.trace: Final = Trace(keep_all=keep_trace)
        self.loop: Final = SimulatedLoop(Random(f"{seed}:schedule"), until_s=until_s)
        self.network: Final = SimulatedNetwork(self.loop, Random(f"{seed}:network"), self.trace, describe)
        self._nodes: Final[dict[str, Node]] = {}

    # ---- for scenarios

    def node(self, name: str) -> Node:
        """The node of this name, which is created on first use."""
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = Node(self, name)
        return node

    def nodes(self, *names: str) -> list[Node]:
        """The nodes of these names, or all nodes in the order of their creation."""
        return [self.node(name) for name in names] if names else list(self._nodes.values())

    @property
    def now_ms(self) -> int:
        """Virtual milliseconds since the start."""
        return int((self.loop.time() - START_S) * 1000)

    def record(self, what: str) -> None:
        """Write a line to the trace, in the name of the calling process."""
        self.trace.write(self.loop.time(), _speaker(), what)

    async def sleep(self, duration_s: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(duration_s)

    async def wait_until(
        self, condition: Callable[[], bool], what: str, *, timeout_s: float = 60.0, poll_s: float = 0.01
    ) -> None:
        """Wait until the condition holds; raises `SimulationError` naming `what` after `timeout_s`."""
        end = self.loop.time() + timeout_s
        while not condition():
            if self.loop.time() >= end:
                raise SimulationError(f"waited {timeout_s:g} s of virtual time in vain", where=what)
            await asyncio.sleep(poll_s)

    # ---- running

    def run(self, scenario: Callable[[Simulation], Coroutine[Any, Any, T]]) -> T:
        """Run `scenario(self)` to its end and return its result.

        Its exceptions get notes with the seed and the end of the trace. Raises
        `BackgroundFailureError` for failures that nobody awaited.
        """
        logger, lines = logging.getLogger("drivetrain"), _LogLines(self)
        level, was_collecting = logger.level, gc.isenabled()
        logger.addHandler(lines)
        if logger.getEffectiveLevel() > logging.INFO:
            logger.setLevel(logging.INFO)
        gc.disable()
        try:
            result: T = Context().run(lambda: self.loop.run_until_complete(scenario(self)))
            self.loop.close()
            self._require_no_failures()
        except BaseException as error:
            self._explain(error)
            raise
        finally:
            self.loop.close()
            logger.removeHandler(lines)
            logger.setLevel(level)
            if was_collecting:
                gc.enable()
        return result

    def _require_no_failures(self) -> None:
        for context in self.loop.failures:
            error = context.get("exception")
            raise BackgroundFailureError(
                str(context.get("message", "a callback failed")),
                where=str(context.get("life", "")) or None,
                got=None if error is None else f"{type(error).__name__}: {error}",
            ) from error

    def _explain(self, error: BaseException) -> None:
        story = "\n".join(f"    {line}" for line in self.trace.lines(_STORY_LINES))
        error.add_note(
            f"simulation seed {self.seed}; run it again alone with DRIVETRAIN_SEED={self.seed}\n"
            f"trace: {len(self.trace)} lines, digest {self.trace.digest[:16]}, the last of them:\n{story}"
        )


class _LogLines(logging.Handler):
    """Copies log lines into the trace."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.INFO)
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        if not self._simulation.loop.is_closed():
            self._simulation.record(f"log {record.levelname}: {record.getMessage()}")


def _speaker() -> str:
    life = CURRENT_LIFE.get()
    return "scenario" if life is None else life.name
