"""A process is suspended anywhere, its locks are lost meanwhile, and it wakes while another one runs.

Its locks are lost as on a network file system whose server has not heard of a machine for long, or because
someone has deleted their files.
"""

from __future__ import annotations

import fcntl
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from shell_disk import StandInSink, watching
from shell_engine import ConcurrentUpdateError
from shell_process import Process
from shell_world import STEPS, World, simulated

from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.runtime.lock_marks import LostLockError
from drivetrain.simulator.simulate import SEED_VARIABLE, chosen_seeds, run_seeds
from drivetrain.spark.prepare import opened_sinks

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # its process is let go


class DatabaseSink(StandInSink):
    """A sink that does each of these in one transaction."""

    history: SuspendedHistory

    def write(self, df: list[int], batch_id: int) -> int:
        with self.history.awake():
            return super().write(df, batch_id)

    def prepare(self, df: list[int], batch_id: int) -> int:
        with self.history.awake():
            return super().prepare(df, batch_id)

    def publish(self, txid: int, last: Mapping[str, int], all: Mapping[str, StandInSink]) -> dict[str, int]:
        with self.history.awake():
            return super().publish(txid, last, all)


class SuspendedHistory:
    """The process that is suspended, and its successor, which runs meanwhile."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.former = Process(world)
        self.successor: Process | None = None
        self.outcome: RunOutcome | None = None
        self.error: BaseException | None = None
        self.ends: list[str] = []
        """How the former process has ended; also attempts of the successor that it has disturbed."""
        self.left = random.choice((random.randrange(60), random.randrange(3_000)))
        """How many effects of the former process precede its suspension."""
        self._is_former = False
        self._clock_ms = -(10**18)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """The former process is not suspended inside."""
        was_former, self._is_former = self._is_former, False
        try:
            yield
        finally:
            self._is_former = was_former

    def before_change(self, path: str) -> None:
        if path.startswith(str(self.world.directory)):
            self._may_sleep()

    def reached(self, _point: CrashPoint) -> None:
        self._may_sleep()

    def _may_sleep(self) -> None:
        if not self._is_former:
            return
        self.left -= 1
        if self.left < 0 and (self.successor is None or self.random.random() < 0.3):
            with self.awake():
                clock_ms, self.world.clock_ms = self.world.clock_ms, self._clock_ms
                self.run_successor(self.random.choice((1, 20, 300, 3_000)))
                self._clock_ms, self.world.clock_ms = self.world.clock_ms, clock_ms

    def run_successor(self, steps: int) -> None:
        """Let the successor run; a user, or an application master, starts it again if it was disturbed."""
        while self.outcome is None and self.error is None and steps > 0:
            try:
                if self.successor is None:
                    self._lose_locks()
                    self.successor = Process(self.world)
                    self.outcome = self.successor.run(1)
                while self.outcome is None and steps > 0:
                    steps -= 1
                    self.outcome = self.successor.step()
            except ConcurrentUpdateError as error:
                self._again(error)
            except Exception as error:  # noqa: BLE001 - raised at the end
                if isinstance(error.__cause__, ConcurrentUpdateError) or "multiple streaming" in str(error):
                    self._again(error)
                else:
                    self.error = error

    def _again(self, error: BaseException) -> None:
        assert self.successor is not None
        self.ends.append(f"disturbed: {type(error).__name__}")
        self.successor.stop_all()
        self.successor.release()
        self.successor = None

    def _lose_locks(self) -> None:
        state = self.world.state_directory()
        lock: Any = self.former.rundir._lock
        if state is None or lock._descriptor is None:
            return
        if self.random.random() < 0.5:
            (state / "lock").unlink()
        else:
            fcntl.flock(lock._descriptor, fcntl.LOCK_UN)
        if (state / "prepared.lock").exists():
            (state / "prepared.lock").unlink()

    def _explained(self, error: Exception) -> Exception:
        try:
            self.former.rundir.ownership.explain(error)
        except LostLockError as lost:
            return lost
        return error

    def run(self) -> None:
        """Run the former process to its end, and then its successor."""
        self._is_former = True
        try:
            outcome = self.former.run(1)
            while outcome is None:
                outcome = self.former.step()
            self.ends.append(outcome.value)
            assert self.successor is None, "it has finished what another process runs"
        except Exception as error:
            if self.successor is None:
                raise
            self.ends.append(type(self._explained(error)).__name__)
        finally:
            self._is_former = False
        self.world.clock_ms = self._clock_ms
        if self.successor is not None or self.ends[-1] != RunOutcome.FINISHED.value:
            self.run_successor(STEPS)
            if self.error is not None:
                raise self.error
            assert self.outcome is RunOutcome.FINISHED, self.outcome


def lost_locks(seed: int) -> SuspendedHistory:
    """Run one application in two processes; raises what is wrong."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        world = World(seed, Path(place), deaths=())
        history = SuspendedHistory(world, Random(-seed))

        def opened(_: object, context: Any) -> DatabaseSink:
            sink = DatabaseSink(context.sink_id, world.target)
            sink.history = history
            return sink

        try:
            with simulated(world) as patched, watching(history.before_change), armed(history.reached):
                patched.setattr(opened_sinks, "open_sink", opened)
                world.is_up = True
                history.run()
        except BaseException as error:
            error.add_note(f"run it again alone with {SEED_VARIABLE}={seed}; {history.ends}")
            sys.stderr.write(f"failed with {SEED_VARIABLE}={seed}\n")
            raise
        finally:
            history.former.release()
            if history.successor is not None:
                history.successor.release()
        world.check_end()
        return history


def test_a_process_that_wakes_without_its_locks_changes_nothing() -> None:
    histories: list[SuspendedHistory] = []
    run_seeds(lambda seed: histories.append(lost_locks(seed)), chosen_seeds(8, at_most=1000))
    ends = Counter(end for history in histories for end in history.ends)
    assert len(histories) == 1 or ends["LostLockError"] > len(histories) / 4, ends
