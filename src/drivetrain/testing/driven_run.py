"""A run that a test drives: started, settled after each thing that the test does, ended.

Problem: a run processes messages in threads of its own. A test must know when the run has processed
everything that was sent, without guessing how long that takes, and errors of the run must be raised where the
test waits.

Design: the parts of an embedded run (`spark.run.embedded.assembled`) without its thread: the test's thread
looks after the fragments, and so gets their errors. A run is settled when Spark has processed everything in
the inputs of each query. The queries are checked one after the other in topological order, so that each one
also processes what those before it have written. After an injected failure the run is restarted from its
state directory; a failure during that restart is one more. Since a clock that a test advances is not kept in
the directory, a run that was restarted announces it again, once it has processed what was sent before.

Invariants:

1. After `settle` no fragment has work left until a message is sent or the clock is advanced.
2. After `stop` only the directory of the run is left.
3. A run goes back to its newest checkpoint at most `MOST_RESTORES` times for one thing that a test does.

Called by `scripted_run`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.job.run_progress import QuietListener, RunOutcome, RunResult
from drivetrain.errors import UnavailableError
from drivetrain.private_files import Writers
from drivetrain.runtime.actor_thread import ActorThread
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.state_place import state_home
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.checkpoints.participation import RestoreNeededError
from drivetrain.spark.run.embedded import MOST_RESTORES, assembled, concluded
from drivetrain.spark.run.embedded_loop import EmbeddedLoop
from drivetrain.spark.run.execution import Execution
from drivetrain.spark.run.preparing import prepare
from drivetrain.testing.failures import Failures

if TYPE_CHECKING:
    from drivetrain.config import Config
    from drivetrain.core.plan.plan import Plan

LOOK_S: Final = 0.02
"""How often the fragments are looked at while Spark works."""


class DrivenRun:
    """A run of `plan`; `timeout_s` is how long anything may take that a test waits for."""

    def __init__(self, plan: Plan, config: Config, failures: Failures, timeout_s: float) -> None:
        self.plan: Final = plan
        self._config: Final = config
        self._failures: Final = failures
        self._timeout_s: Final = timeout_s
        self._running: ExitStack | None = None
        self._loop: EmbeddedLoop | None = None
        self._execution: Execution | None = None
        self._started_s = time.monotonic()
        self._clock_ms: int | None = None  # to which the test has advanced it
        self._announced_ms: int | None = None  # the clock that the run has received since its last start
        self._columns: dict[str, str] = {}
        self.restarts = 0
        """How often it has died, and was restarted."""
        self.rundir: Final = RunDirectory(
            state_home(config), plan.application, {}, Writers(config[run_keys.WRITERS])
        )

    @property
    def loop(self) -> EmbeddedLoop:
        """The loop that drives the fragments of the run, which has been started."""
        assert self._loop is not None
        return self._loop

    # -- life ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Compile everything, and start the queries; raises what is wrong with the application."""
        with ExitStack() as parts:
            self.rundir.acquire()
            parts.callback(self.rundir.release)
            execution = self._execution = prepare(self.plan, self.rundir, self._config)
            thread = ActorThread("drivetrain-test", self._config)
            parts.callback(thread.close)
            self._columns = execution.context.columns
            self._loop = assembled(execution, QuietListener(), thread)
            for driver in self._loop.drivers.values():
                parts.callback(driver.stop)
            self._loop.start()
            self._announced_ms = None
            self._running = parts.pop_all()

    def stop(self) -> None:
        """End the run at once; what it had committed stays in its directory."""
        if self._running is not None:
            running, self._running = self._running, None
            running.close()

    def restart(self) -> None:
        """End the run at once, continue from its directory, and settle."""
        self._through_failures(self._settle, dies=True)

    # -- what a test does ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until everything that was sent has been processed; raises what the run fails with."""
        self._through_failures(self._settle)

    def advance(self, clock_ms: int) -> None:
        """Have the sources announce that no message older than `clock_ms` follows, and settle."""
        self._clock_ms = max(clock_ms, clock_ms if self._clock_ms is None else self._clock_ms)
        self._through_failures(self._settle)

    def finish(self) -> RunResult:
        """Wait for the end of a run whose inputs have ended, stop it, and return its result."""
        self._through_failures(self._until_finished)
        assert self._execution is not None
        summary = concluded(self._execution, self.loop, RunOutcome.FINISHED, self._started_s)
        self.stop()
        return summary

    def late_messages(self, processor: str) -> int:
        """How many messages were late for the windows of a processor."""
        counts = [driver.query.counts for driver in self.loop.drivers.values()]
        return sum(of.copied()[2].get(processor, 0) for of in counts)

    def columns(self, processor: str) -> str:
        """The columns of what a processor gives, as DDL."""
        return self._columns[processor]

    # -- waiting -------------------------------------------------------------------------------------

    def _through_failures(self, wait: Callable[[], None], *, dies: bool = False) -> None:
        """Do what waits for the run, again after each injected failure; with `dies` restart it first."""
        restores = 0
        while True:
            try:
                if dies:
                    self._start_again()
                return wait()
            except RestoreNeededError as error:
                restores += 1
                if restores > MOST_RESTORES:
                    raise UnavailableError(
                        "the run goes back to its newest checkpoint again and again",
                        where=self.plan.application,
                        expected=f"at most {MOST_RESTORES} times for one call of the test",
                        got=str(error),
                        remedy="see what damages or deletes the files of its checkpoint",
                    ) from error
            except Exception as error:
                if not self._failures.explains(error):
                    raise
            dies = True  # restarted outside of the handler, so that an error there is a failure, too

    def _start_again(self) -> None:
        self.restarts += 1
        self.stop()
        self.start()

    def _settle(self) -> None:
        self._process_all()
        if self._announced_ms != self._clock_ms:
            assert self._clock_ms is not None
            for driver in self.loop.drivers.values():
                if isinstance(driver.query, MicroBatchQuery):
                    driver.query.idle_clock.advance(self._clock_ms)
            self._announced_ms = self._clock_ms
            self._process_all()

    def _process_all(self) -> None:
        for driver in self.loop.drivers.values():
            query = driver.query
            if isinstance(query, MicroBatchQuery) and query.active:
                waiting = threading.Thread(target=query.wait_processed, daemon=True)
                waiting.start()
                self.look_until(lambda: not waiting.is_alive(), f"fragment {driver.fragment}")  # noqa: B023 - called before the next turn
            self.look_until(lambda: not driver.is_recovering, f"fragment {driver.fragment}")  # noqa: B023 - likewise
        self.loop.step(monotonic_ms())  # Spark has reported the last batches by now

    def _until_finished(self) -> None:
        if self._announced_ms != self._clock_ms:
            self._settle()
        self.look_until(lambda: False, "its end")

    def look_until(self, is_done: Callable[[], bool], what: str) -> None:
        """Look after all fragments until `is_done`, or until the run has ended."""
        deadline_s = time.monotonic() + self._timeout_s
        while self.loop.step(monotonic_ms()) is None and not is_done():
            if time.monotonic() > deadline_s:
                raise UnavailableError(
                    f"the run waits for {what}",
                    where=self.plan.application,
                    expected=f"within {self._timeout_s:g} s",
                    got="; ".join(
                        f"{id}: {driver.query.waiting_for() or driver.query.state}"
                        for id, driver in self.loop.drivers.items()
                    ),
                    remedy="give it a longer timeout; or a function waits, or a source has no messages",
                )
            time.sleep(LOOK_S)
