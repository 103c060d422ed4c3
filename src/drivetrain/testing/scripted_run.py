"""A run with its inputs and lists, which can repeat the steps of another run.

Problem: only a plan with one more output gives late messages, or the messages of a processor inside a trunk.
A test that looks at them should not have to request them in advance.

Design: each action of a test is recorded as a step. A second run of the same graph, with the additional
output, repeats the recorded steps from the first one on, and settles after each as the first run did, so its
batches are the same.

Called by `test_run`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.config.catalog import spark as spark_keys
from drivetrain.connectors.in_process.declared_columns import declared_columns
from drivetrain.connectors.in_process.memory_sink import collected, forget
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.errors import UserError
from drivetrain.runtime.dead_letter_pages import stores_below
from drivetrain.runtime.dead_letter_store import SCHEMA
from drivetrain.runtime.temporary_folders import make_temporary_folder
from drivetrain.spark.session.spark_session import session
from drivetrain.testing.driven_run import DrivenRun
from drivetrain.testing.failures import Failures
from drivetrain.testing.rewiring import Setup, rewired
from drivetrain.testing.sent_input import SentInput

if TYPE_CHECKING:
    from drivetrain.api.graphs.graph import Graph
    from drivetrain.core.job.run_progress import RunResult

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a file system, in which a private directory is made
"""Where Linux keeps files in memory: what a test writes need not survive a restart of the machine."""


@dataclass(frozen=True)
class Sent:
    """A test has sent a batch to a source.

    `settles`: the run processes it before the next step. A step that waits for the end itself needs no such
    wait before it, which would cost a batch more.
    """

    source: str
    batch: Any
    settles: bool = True


@dataclass(frozen=True)
class ClockAdvanced:
    """A test has advanced the clock."""

    clock_ms: int


@dataclass(frozen=True)
class Ended:
    """A test has ended all inputs."""


Step = Sent | ClockAdvanced | Ended


class ScriptedRun:
    """A run of `graph` that is started, in a directory of its own until `close`.

    `columns` are those of sources that do not declare any, as DDL. Raises what is wrong with the application
    or the setup.
    """

    def __init__(
        self,
        graph: Graph,
        setup: Setup,
        columns: Mapping[str, str],
        sets: Mapping[str, str],
        failures: Failures,
        timeout_s: float,
    ) -> None:
        self._place: Final = private_directory()
        self._columns: Final = columns
        self._config: Final = test_config(self._place, sets)
        self._ended = False
        self.result: RunResult | None = None
        token = f"test-{uuid.uuid4().hex[:8]}"
        self._lists: dict[str, str] = {}
        try:
            real = [graph.nodes[id].operation for id in setup.real if id in graph.nodes]
            kafka = any(getattr(o.target or o.any_source, "needs_connector", False) for o in real)
            spark = session(self._config, "drivetrain-tests", kafka=kafka)

            def columns_of(source: Any, id: str) -> str:
                return columns.get(id) or declared_columns(source, id, spark) or _no_columns(source, id)

            self._made = rewired(graph, setup, columns_of, f"{self._place}/inputs", token)
            self._lists = {**self._made.lists, **self._made.late_lists}
            self.inputs: Final = {
                id: SentInput(id, ddl, f"{self._place}/inputs/{id}") for id, ddl in self._made.columns.items()
            }
            self._run: Final = DrivenRun(
                make_plan(self._made.graph, delivery=self._config[run_keys.DELIVERY]),
                self._config,
                failures,
                timeout_s,
            )
            self._run.start()
        except BaseException:
            self._release()
            raise

    def take(self, step: Step) -> None:
        """Do a step, and settle if it asks for that; raises what the run fails with."""
        match step:
            case Sent(source, batch, settles):
                self.inputs[source].append(batch)
                if settles:
                    self._run.settle()
            case ClockAdvanced(clock_ms):
                self._run.advance(clock_ms)
            case Ended():
                for input in self.inputs.values():
                    input.end()
                self.result = self._run.finish()
                self._ended = True

    def rest(self) -> None:
        """End its queries: nothing more is done, and what it lists can be looked at."""
        self._run.stop()

    def restart(self) -> None:
        """Let the run die, and continue from its directory."""
        self._run.restart()

    # -- what it shows -------------------------------------------------------------------------------

    @property
    def listed(self) -> frozenset[str]:
        """The processors whose messages are listed."""
        return frozenset(self._made.lists)

    def emitted(self, processor: str) -> Any:
        """The messages of a listed processor, as an Arrow table."""
        return collected(self._made.lists[processor])

    def late(self, processor: str) -> Any:
        """The late messages of a processor, if the setup asks for them, as an Arrow table."""
        return collected(self._made.late_lists[processor])

    def late_messages(self, processor: str) -> int:
        """How many messages were late for the windows of a processor."""
        return self._run.late_messages(processor)

    @property
    def clock_ms(self) -> int | None:
        """The application's clock."""
        clock = self._run.loop.clock
        return clock.clock_ms if self._ended else clock.settle(10_000)

    def dead_letters(self) -> list[dict[str, Any]]:
        """The dead letters of all fragments, fragment by fragment."""
        return [
            row
            for store in stores_below(self._run.rundir.path)
            for batch in store.batches()
            for row in batch.select(SCHEMA.names).to_pylist()
        ]

    @property
    def was_restarted(self) -> bool:
        """Whether it has died and continued."""
        return self._run.restarts > 0

    def spark(self) -> Any:
        """The session that it runs on."""
        return session(self._config, "drivetrain-tests")

    @property
    def home(self) -> Path:
        """Where the state of the run is."""
        return self._run.rundir.home

    def close(self) -> None:
        """End the run, and delete all that it has written, its lists included."""
        try:
            self._run.stop()
        finally:
            self._release()

    def _release(self) -> None:
        forget(*self._lists.values())
        shutil.rmtree(self._place, ignore_errors=True)


def private_directory() -> str:
    """A new directory, in memory where that is possible, which only this user can enter."""
    return tempfile.mkdtemp(prefix="run-", dir=_directory_of_process())


@cache
def _directory_of_process() -> str:
    """A directory that is deleted when the process ends, or by a later one if it is killed.

    Deleting a run's own directory is not enough: Spark may create state directories in it again afterwards.
    """
    in_memory = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    return str(make_temporary_folder("drivetrain-test-", MEMORY if in_memory else None))


def test_config(place: str, sets: Mapping[str, str]) -> Config:
    """The configuration of a test's run whose files are in `place`: what a test does not need is off.

    `sets` win. Spark is what it is in production; only shuffles have one partition.
    """
    defaults = {"state.dir": f"{place}/state", spark_keys.SHUFFLE_PARTITIONS.name: "1"}
    return Config.load(None, {}, {**defaults, **sets})


def _no_columns(source: Any, id: str) -> str:
    raise UserError(
        "the source does not declare its columns",
        where=id,
        got=type(source).__name__,
        remedy=f'name them: TestRun(app, columns={{"{id}": "at timestamp, amount bigint"}})',
    )
