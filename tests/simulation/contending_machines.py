"""Machines that want one application whose state is in an object store, on virtual time.

Each machine is a thread that goes on when it is told to: before and after each request to the store, and when
it has slept. It may be suspended or die there. The application's state is the list of what it has decided,
and the code that fetches, claims, copies and leases is the real one.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from random import Random

from drivetrain.core.checkpoint.transaction import CheckpointRecord
from drivetrain.core.replay.replay import Life
from drivetrain.errors import UnavailableError
from drivetrain.runtime.checkpoints.checkpoint_copy import TakenOverError
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.savepoint_manifest import FORMAT, Manifest, SavedFile
from drivetrain.runtime.checkpoints.state_lease import LEASE_S, RENEW_S, LeaseNote, StateLease
from model_store import ModelStore

PLACE = "s3://states/app"
FILE = "decided"


class DeathError(BaseException):
    """The process dies."""


class Contention:
    """The store, the clock, and what the machines have decided; `machines` compete for it."""

    def __init__(self, seed: int, directory: Path, machines: int) -> None:
        self.random = Random(seed)
        self.objects: dict[str, bytes] = {}
        self.now_s = 0.0
        self.decided: list[str] = []
        """The longest list that any machine may show."""
        self.renewed_s: dict[str, list[float]] = {}
        """By the name of a lease, when it was renewed."""
        self.refused = self.taken_over = self.deaths = self.successions = 0
        self.machines = [Machine(self, number, directory / str(number)) for number in range(machines)]

    def run(self, until_s: float) -> None:
        """Let them run, suspended and killed now and then, and then let all end."""
        try:
            while self.now_s < until_s:
                ready = [machine for machine in self.machines if machine.wakes_s <= self.now_s]
                if not ready:
                    self.now_s = min(machine.wakes_s for machine in self.machines)
                    continue
                machine = self.random.choice(ready)
                self.now_s += self.random.choice((0.0, 0.01, 0.2))
                chance = self.random.random()
                if chance < 0.012:
                    machine.wakes_s = self.now_s + self.random.choice((3, LEASE_S + 3, 90))
                elif chance < 0.014:
                    self.deaths += 1
                    machine.dies = True
                    machine.go_on()
                else:
                    machine.go_on()
                for one in self.machines:
                    if one.error is not None:
                        raise one.error
        finally:
            for machine in self.machines:
                machine.end()

    def show(self, decided: list[str]) -> None:
        """A machine shows what its checkpoint in the store has: one list continues the other."""
        short, long = sorted((decided, self.decided), key=len)
        assert long[: len(short)] == short, f"two histories: {short} and {long}"
        self.decided = list(long)

    def judge_lease(self, name: str, from_s: float, to_s: float) -> None:
        """A lease was found to be over by looking at it from a time to another."""
        assert to_s - from_s >= LEASE_S, f"it was watched for {to_s - from_s} s only"
        renewed_s = [at_s for at_s in self.renewed_s.get(name, ()) if from_s < at_s <= to_s]
        assert not renewed_s, "a process that renewed its lease was to be replaced"


class Machine:
    """A machine with its disk, whose process starts again and again."""

    def __init__(self, world: Contention, number: int, disk: Path) -> None:
        self.world, self.number, self.disk = world, number, disk
        self.wakes_s = world.random.uniform(0, 30)
        self.dies = self.is_over = False
        self.error: BaseException | None = None
        self._goes, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    # -- for the one who lets it run ---------------------------------------------------------------------

    def go_on(self) -> None:
        self._goes.release()
        self._waits.acquire()

    def end(self) -> None:
        self.is_over = True
        self._goes.release()
        self._thread.join(10)
        assert not self._thread.is_alive()

    # -- its thread --------------------------------------------------------------------------------------

    def _pause(self, *_: str) -> None:
        self._waits.release()
        self._wait()

    def _wait(self) -> None:
        self._goes.acquire()
        if self.is_over or self.dies:
            raise DeathError

    def sleep(self, duration_s: float) -> None:
        self.wakes_s = self.world.now_s + duration_s
        self._pause()

    def _live(self) -> None:
        CURRENT.machine = self
        wait = self._wait
        while not self.is_over:
            try:
                wait()
                self._process()
            except DeathError:
                self.dies = False
            except BaseException as error:  # noqa: BLE001 - judged by the one who lets it run
                self.error = error
                self._waits.release()
                return
            wait = self._rest

    def _rest(self) -> None:
        self.sleep(self.world.random.uniform(1, 60))

    def _process(self) -> None:
        """One process: it wants the application, and has it until it is taken over, ends or dies."""
        world, random = self.world, self.world.random
        if random.random() < 0.3:
            shutil.rmtree(self.disk, ignore_errors=True)  # another machine, in effect
        self.disk.mkdir(parents=True, exist_ok=True)
        store = ModelStore(world.objects, before=self._pause, after=self._after)
        lease = JudgedLease(store, PLACE, world)
        copies = CopiedCheckpoints(store, "app", PLACE, self.disk, lease)
        try:
            decided = self._begun(copies)
            for _ in range(random.choice((3, 30))):
                decided.append(f"{self.number}-{len(decided)}-{random.randrange(10**6)}")
                (self.disk / FILE).unlink(missing_ok=True)
                (self.disk / FILE).write_text("\n".join(decided))
                copies.add([(FILE, self.disk / FILE)], manifest)
                world.show(decided)
                for _ in range(random.choice((0, 1, 4))):
                    copies.require_newest()
                    lease.renew()
                    self.sleep(RENEW_S)
            lease.end()
        except TakenOverError:
            world.taken_over += 1
        except UnavailableError as error:
            if error.what not in ("the application is already running", REPLACED):
                raise
            world.refused += 1

    def _begun(self, copies: CopiedCheckpoints) -> list[str]:
        """What is decided so far, as its own from now on."""
        while True:
            was_copied = (self.disk / FILE).exists()
            if copies.newest_elsewhere(has_state=True, was_copied=was_copied) is not None:
                shutil.rmtree(self.disk)
                self.disk.mkdir()
            if not (self.disk / FILE).exists():
                newest = copies.begin()
                if newest is not None and newest.manifest is not None:
                    copies.fetch(newest, self.disk)
            self.world.successions += copies.claim(starts_over=False)
            if not copies.is_outdated:
                text = (self.disk / FILE).read_text() if (self.disk / FILE).exists() else ""
                return text.split("\n") if text else []
            (self.disk / FILE).unlink(missing_ok=True)

    def _after(self, what: str, path: str) -> None:
        if what == "put" and "/leases/" in path:
            self.world.renewed_s.setdefault(path, []).append(self.world.now_s)
        self._pause()


REPLACED = "the newest checkpoint is replaced faster than it is read"
CURRENT = threading.local()
"""The machine of a thread."""


class JudgedLease(StateLease):
    """A lease whose verdicts are judged."""

    def __init__(self, store: ModelStore, place: str, world: Contention) -> None:
        super().__init__(store, "app", place)
        self._world = world
        self._seen: list[tuple[float, LeaseNote | None]] = []

    def wait_until_over(self, owner: str) -> bool:
        self._seen.clear()
        has_ended = super().wait_until_over(owner)
        if not has_ended and self._seen[-1][1] is not None:  # else its successor has deleted it
            self._world.judge_lease(self._name(owner), self._seen[0][0], self._seen[-1][0])
        return has_ended

    def _read(self, owner: str) -> LeaseNote | None:
        note = super()._read(owner)
        self._seen.append((self._world.now_s, note))
        return note


def manifest(files: Mapping[str, SavedFile]) -> Manifest:
    record = CheckpointRecord(1, 1, {})
    return Manifest(FORMAT, "app", "app", {}, {}, 0, {}, Life(), record, None, {}, dict(files))
