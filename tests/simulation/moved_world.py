"""A cluster that runs an application whose state is in an object store, on workers with a disk each.

The application master and its executors share a worker. Its machine may be lost with its disk, or be cut off
while the leader starts the next application master elsewhere. The store is in memory; what claims, copies and
fetches is real.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from app_master_world import SETTINGS
from attempt_checks import AttemptChecks
from attempt_world import AttemptWorld, made_world
from shell_disk import Killed, StandInSink, Target

from drivetrain.cluster.app_master.app_master_messages import Setup
from drivetrain.cluster.app_master.stream import application_copies
from drivetrain.cluster.app_master.stream.stored_scalings import StoredScalings
from drivetrain.cluster.executor import executor_copies
from drivetrain.cluster.messages.launching import Launch
from drivetrain.config import Config
from drivetrain.core.change.scaling_state import ScalingState
from drivetrain.core.checkpoint.transaction import CheckpointRecord, Phase, Transaction
from drivetrain.crash_points import CrashPoint
from drivetrain.errors import DrivetrainError
from drivetrain.private_files import Writers
from drivetrain.runtime.checkpoints import copied_checkpoints
from drivetrain.runtime.checkpoints.change_files import lay_out
from drivetrain.runtime.checkpoints.checkpoint_copy import CheckpointCopy, TakenOverError, decoded
from drivetrain.runtime.durable_file import DurableFile, Keep
from drivetrain.runtime.graph_versions import FOLDER, GraphVersions
from drivetrain.runtime.preparation import Preparation, Preparer
from drivetrain.runtime.wanted_scaling import WantedScalingFile
from drivetrain.simulator import Node, Simulation
from drivetrain.simulator.process_life import CURRENT_LIFE, Life
from drivetrain.spark.checkpoints import from_savepoint
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.run import copying
from model_store import ModelStore

W = TypeVar("W", bound="MovedWorld")

PLACE = "s3://states"
LOOK_S = 1.0


class MovedWorld(AttemptWorld):
    """The application with its store; `home` is the worker on which its current application master runs."""

    def __init__(self, simulation: Simulation, place: Path, deaths: Sequence[CrashPoint] | None) -> None:
        settings = {"state.dir": PLACE, "checkpoint.mode": "on"}
        super().__init__(simulation, place, deaths, settings)
        self.is_one_machine = False
        self.are_made = True
        self.harms_left = self.reader.left = 0
        changes, scalings = Random(f"{simulation.seed} moved changes").choice(
            ((0, 0), (3, 2), (8, 0), (8, 4))
        )
        self.changer.changes_left = changes * (deaths is None)
        self.scaler.left = scalings * (deaths is None)
        self.promises = ScalingPromises()
        self.scaler.check_end = self.check_scaled  # type: ignore[method-assign]
        # The versions of a finished application may be on a machine that is lost.
        self.changer.check_end = self.check_noted  # type: ignore[method-assign]
        self.taken_over: set[int] = set()
        """The versions that another worker has found in the store, and nobody was told of."""
        self.continued = 0
        """The newest version that another worker has found there."""
        self.homes: dict[int, Node] = {}
        """By epoch, the worker."""
        self.store = ModelStore(before=self.at_request, after=self.after_request)
        self.copied: list[CheckpointRecord] = []
        """What the store has ever had."""
        self.moves = self.lost = 0
        """How often another worker continued, and how often a disk was lost."""
        self.until_s = simulation.loop.time() + self.random.choice((10.0, 30.0, 60.0))
        self.prefers: Node | None = None
        """The worker of the next application master; None: any."""
        self.decided: list[tuple[int, CheckpointRecord | None]] = []
        """The transactions that were decided, each with the epoch of the process."""
        self.checks = MovedChecks(self.epoch_of)

    def is_held_up(self, draw: Random) -> bool:
        """Sources give less until something may have happened."""
        is_long = self.simulation.loop.time() < self.until_s or super().is_held_up(draw)
        return is_long and draw.random() < 0.85

    # -- places ------------------------------------------------------------------------------------------

    def state(self) -> Path | None:
        """The directory of the process that asks, or where the current application master runs."""
        life = CURRENT_LIFE.get()
        epoch = max(self.homes) if life is None or life.name not in self.lives else self.epoch_of(life)
        return next((self.place / self.homes[epoch].name).glob("*/shells-*"), None)

    def placed(self, setup: Setup) -> Setup:
        home = self._chosen()
        self.moves += bool(self.homes) and self.homes[max(self.homes)] is not home
        self.homes[setup.epoch] = home
        return dataclasses.replace(
            setup, config=self._config_on(home), together_on=home.name, submission=self.submission
        )

    def _chosen(self) -> Node:
        if self.prefers is not None:
            return self.prefers
        alive = [worker for worker in self.workers if worker.is_alive] or self.workers
        if self.homes and self.homes[max(self.homes)] in alive and self.random.random() < 0.5:
            return self.homes[max(self.homes)]
        return self.random.choice(alive)

    def config_of(self, launch: Launch) -> Config:
        return self._config_on(self.homes[launch.epoch])

    def _config_on(self, home: Node) -> Config:
        own = {"state.work-dir": str(self.place / home.name)}
        return Config.load(None, None, SETTINGS | self.settings | own)

    def sink(self, context: SinkContext) -> StandInSink:
        return ClaimingSink(context, self.target)

    def reap(self) -> None:
        super().reap()
        home = self.homes.get(self.epoch)
        if home is not None and not home.is_alive:
            self.kill_app_master()

    def lose(self, worker: Node) -> None:
        """A machine ends with all its processes, and its disk is lost."""
        worker.crash()
        for epoch, home in self.homes.items():
            node = self.simulation.node(f"am{epoch}")
            if home is worker and node.is_alive:
                node.crash()
        self.reap()
        shutil.rmtree(self.place / worker.name, ignore_errors=True)
        self.lost += 1

    # -- the store ---------------------------------------------------------------------------------------

    def at_request(self, _what: str, _path: str) -> None:
        """Called before and after a request: the process may end here."""
        life = CURRENT_LIFE.get()
        if life is None:
            return
        if not life.is_alive:
            raise Killed
        self.may_die(life, self.risk * 5)

    def after_request(self, what: str, path: str) -> None:
        if what == "create" and "/checkpoints/" in path:
            copy = decoded(self.store.objects[path], path)
            if copy.manifest is not None:
                self.copied.append(copy.manifest.record)
        self.at_request(what, path)

    def newest_copy(self) -> CheckpointCopy | None:
        """The newest checkpoint; None: nobody has claimed any."""
        names = [name for name in self.store.objects if "/checkpoints/" in name]
        return decoded(self.store.objects[max(names)], "") if names else None

    def claimed_epoch(self) -> int:
        """The epoch that has the newest checkpoint; 0: nobody has claimed any."""
        newest = self.newest_copy()
        return 0 if newest is None else newest.epoch

    # -- changes -----------------------------------------------------------------------------------------

    def noted(self, name: str) -> bytes | None:
        """What the newest checkpoint has as this file, which says how the application has changed."""
        newest = self.newest_copy()
        file = None if newest is None else newest.changes.get(name)
        if newest is None or file is None:
            return None
        pack, start = newest.places[file.sha256]
        return self.store.objects[pack][start : start + file.size]

    def decided_here(self, file: Path) -> None:
        """A file decides about a version from now on: if it is not cut off, the store has it."""
        life = CURRENT_LIFE.get()
        if life is None or self.epoch_of(life) != self.claimed_epoch():
            return
        code = f"{FOLDER}/{file.name.split('.')[0]}.graph"
        if self.noted(f"{FOLDER}/{file.name}") != file.read_bytes() or self.noted(code) is None:
            self.records.violations.append(f"{file.name} is decided, and the store does not have it")

    def laid_out(self, state: Path, files: Mapping[str, bytes]) -> None:
        """Another worker continues with what the store has: with all that was decided."""
        self.promises.found(state)
        stored = GraphVersions(state)
        self.continued = max(self.continued, *stored.numbers(), 0)
        missing = self.changer.in_force - set(stored.numbers())
        if files and missing:
            self.records.violations.append(f"versions {missing} were in force, and are not continued")
        for number in stored.numbers():
            ending = stored.ending(number)
            known = self.changer.outcomes.get(number)
            if known is not None and (ending is None or ending.outcome is not known):
                self.records.violations.append(f"version {number} was {known}, and now {ending}")
            if number not in self.changer.in_force:  # its process has died before it was told
                self.changer.noted(stored, stored.version(number))
                self.taken_over.add(number)
            if ending is not None:
                self.changer.outcomes[number] = ending.outcome

    def check_scaled(self) -> None:
        """Check at the end that every scaling that was promised has been done, on whichever worker."""
        assert not self.scaler.wrong, "; ".join(self.scaler.wrong)
        newest = self.newest_copy()
        if newest is not None and newest.manifest is not None:
            self.promises.check(newest.manifest.shuffle_partitions)

    def check_noted(self) -> None:
        """Check at the end that the store has what was decided."""
        self.changer.check()
        if any(n for n in self.changer.in_force if n > 1):
            assert all(self.noted(f"versions/{n}") for n in self.changer.in_force)
            assert all(self.noted(f"versions/{n}.outcome") for n in self.changer.outcomes)

    # -- what must hold ----------------------------------------------------------------------------------

    def persisted(self, transaction: Transaction) -> None:
        """A transaction commits only if the store has had its checkpoint."""
        life = CURRENT_LIFE.get()
        if transaction.phase is Phase.COMMITTING and life is not None:
            self.decided.append((self.epoch_of(life), transaction.record))
        if transaction.phase is not Phase.PREPARING and transaction.record not in (None, *self.copied):
            self.records.violations.append(f"{transaction.record} is decided, and was never in the store")
        self.is_preparing = transaction.phase is Phase.PREPARING

    def hear_clock(self, clock_ms: int | None) -> None:
        """The clock never goes back, although the state may go back to a checkpoint."""
        if clock_ms is not None:
            assert clock_ms >= self.told_ms, f"the clock goes back from {self.told_ms} to {clock_ms}"
            self.told_ms = clock_ms


class ScalingPromises:
    """The scalings that were wanted, in order, and those that have perhaps ended without success."""

    def __init__(self) -> None:
        self.wanted: dict[str, ScalingState] = {}
        self.in_vain: set[str] = set()

    def found(self, state: Path) -> None:
        """Another worker finds one in the store; nobody may have been told of it."""
        wanted = WantedScalingFile(state).read()
        if wanted is not None:
            self.wanted.setdefault(wanted.state.id, wanted.state)

    def watch(self, patched: pytest.MonkeyPatch) -> None:
        """Hear of all that begin and end."""
        begin, end = StoredScalings.begin, StoredScalings.end

        def begun(stored: StoredScalings, state: ScalingState) -> None:
            begin(stored, state)
            self.wanted[state.id] = state

        def ended(stored: StoredScalings, state: ScalingState) -> object:
            if not stored._is_done(state):
                self.in_vain.add(state.id)
            return end(stored, state)

        patched.setattr(StoredScalings, "begin", begun)
        patched.setattr(StoredScalings, "end", ended)

    def check(self, partitions: Mapping[str, int]) -> None:
        """Check how many partitions each fragment has."""
        for fragment in {state.fragment for state in self.wanted.values()}:
            states = [state for state in self.wanted.values() if state.fragment == fragment]
            possible = {states[0].before}
            for state in states:
                possible = possible | {state.after} if state.id in self.in_vain else {state.after}
            found = partitions.get(fragment)
            assert found in possible, f"{fragment} has {found} partitions, not {possible}: {states}"


class MovedChecks(AttemptChecks):
    """Each worker has a directory of its own, with preparers of its own."""

    def prepared(self, preparation: Preparation, preparer: Preparer) -> None:
        self.prepared_epoch = max(self.prepared_epoch, preparer.epoch)

    def changes(self, life: Life, path: str) -> None:
        if ".fetched/" not in path:
            super().changes(life, path)

    def persists(self, _transaction: Transaction) -> None:
        """Does nothing: an application master that is cut off may begin transactions in its own directory."""


class ClaimingSink(StandInSink):
    """A sink whose prepared batches wait in a folder of the claim, as those of file sinks in a store do."""

    def __init__(self, context: SinkContext, target: Target) -> None:
        super().__init__(context.sink_id, target)
        self._all = self.waiting
        self._note = Path(context.state_dir) / "claim"
        self._settle(context.claim)

    def _settle(self, claim: str) -> None:
        self.waiting = self._all / (claim or "none")
        self.waiting.mkdir(exist_ok=True)

    def claimed(self, claim: str) -> None:
        self._settle(claim)
        self._note.parent.mkdir(parents=True, exist_ok=True)
        if not self._note.exists() or self._note.read_text() != claim:
            self._note.write_text(claim)

    def succeed(self, claim: str, last: int | None, *, is_copied: bool) -> None:
        """Take over what counts of the process whose note came with the checkpoint."""
        former = self._all / self._note.read_text() if self._note.exists() else None
        self._settle(claim)
        shown = self.target.shown().get(self.id, (-1, []))[0]
        if last is not None and former is not None and former != self.waiting:
            for path in former.iterdir():
                if path.name.isdigit() and shown < int(path.name) <= last:
                    aside = self.waiting / "aside.tmp"
                    aside.write_text(path.read_text())
                    aside.replace(self.waiting / path.name)
        self.claimed(claim)


class SteppedWatch:
    """Looks, as `ContinuationWatch` does in a thread, in a task of the process."""

    def __init__(self, look: Callable[[], None], report: Callable[[BaseException], None]) -> None:
        self._look, self._report, self._is_over = look, report, False
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def close(self) -> None:
        self._is_over = True

    async def _watch(self) -> None:
        while not self._is_over:
            try:
                self._look()
            except TakenOverError as error:
                self._report(error)
                return
            except DrivetrainError:
                pass  # the next one
            await asyncio.sleep(LOOK_S)


@contextlib.contextmanager
def moved_world(
    simulation: Simulation,
    deaths: Sequence[CrashPoint] | None = None,
    kind: type[W] = MovedWorld,  # type: ignore[assignment]
) -> Iterator[W]:
    """A world whose processes have its clock, its disks, its store and its engine."""
    with made_world(lambda place: kind(simulation, place, deaths)) as (world, patched):
        patched.setattr(copied_checkpoints, "open_place", lambda *_, **__: (world.store, "states"))
        for module in (application_copies, executor_copies):
            patched.setattr(module, "ContinuationWatch", SteppedWatch)
        watch_decisions(patched, world)
        world.promises.watch(patched)
        yield world


def watch_decisions(patched: pytest.MonkeyPatch, world: MovedWorld) -> None:
    """Let the world see what is decided about versions, and what another worker finds of it."""
    write_kept = DurableFile.write_kept

    def decided(file: DurableFile, content: bytes, keep: Keep | None, folder: str = "") -> None:
        write_kept(file, content, keep, folder)
        if keep is not None and folder == FOLDER:
            world.decided_here(file.path)

    def laid_out(state: Path, files: Mapping[str, bytes], writers: Writers) -> None:
        lay_out(state, files, writers)
        world.laid_out(state, files)

    patched.setattr(DurableFile, "write_kept", decided)
    for module in (copying, from_savepoint):
        patched.setattr(module, "lay_out", laid_out)
