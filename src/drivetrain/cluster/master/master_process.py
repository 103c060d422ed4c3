"""The master's process: actor system, network and disk.

Invariants:
1. A master whose list of masters differs from that of one that started earlier ends with an error that shows
   both.
2. A leading master that is asked to end resigns first: the next one need not wait until the lease ends.
3. A damaged file in its directory ends it with an error, instead of an empty registry.

Called by the command line (`serve_master`) and by tests and benchmarks (`start_master`, on any disk and
transport).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from drivetrain.actor import ActorRef, ActorSystem
from drivetrain.actor.disk import DirectoryDisk, Disk
from drivetrain.actor.remote import attach_remote
from drivetrain.cluster.access.system_names import MASTER
from drivetrain.cluster.connection import remote_settings
from drivetrain.cluster.health import Readiness, health_server
from drivetrain.cluster.master.master import Master
from drivetrain.cluster.master.master_messages import Leadership, StepDown
from drivetrain.cluster.master.master_settings import MasterSettings, split_place
from drivetrain.cluster.master.registry.election_actor import VoteStore
from drivetrain.cluster.master.registry.replica import ReplicaStore
from drivetrain.config import Config
from drivetrain.config.catalog import master as keys
from drivetrain.core.cluster.election import Election
from drivetrain.core.cluster.election_events import MasterAddress, Term
from drivetrain.errors import UnavailableError
from drivetrain.file_lock import FileLock
from drivetrain.private_files import make_private_directory

_RESIGN_POLL_S: Final = 0.01
_RESIGN_POLLS: Final = 100

log = logging.getLogger("drivetrain.cluster")


async def serve_master(
    config: Config,
    stop: asyncio.Event | None = None,
    *,
    on_ready: Callable[[str], object] | None = None,
) -> None:
    """Run a master until `stop` is set, or forever; `on_ready(address)` is called once it listens.

    Raises `ConfigError` when `cluster.masters` does not contain this master or another master has a
    different list (see `agreement`), `InsecureBindError`, `AddressInUseError`, `CorruptLogError`, and
    `UnavailableError` when another process uses the directory.
    """
    settings = MasterSettings.from_config(config)
    _, port = split_place(settings.me)
    remote = remote_settings(config, port, system=MASTER)
    directory = Path(config[keys.DIRECTORY])
    lock = _lock(directory)
    disk = DirectoryDisk(directory)
    system = ActorSystem(MASTER, config=config)
    try:
        await attach_remote(system, remote)
        master, leadership = await start_master(system, settings, disk)
        log.info("the master %s listens; its directory is %s", settings.me, directory.resolve())
        if on_ready is not None:
            on_ready(settings.me)
        async with health_server(config, lambda: _readiness(leadership)):
            await _serve(system, leadership, stop)
            if not system.is_terminated:
                await _wait_resigned(master, leadership)
    finally:
        await system.terminate()
        disk.close()
        lock.release()


async def start_master(
    system: ActorSystem,
    settings: MasterSettings,
    disk: Disk,
    wall_ms: Callable[[], int] | None = None,
) -> tuple[ActorRef, Leadership]:
    """Spawn `/user/master` in a system named "master" with a remote layer; raises `CorruptLogError`."""
    store, votes = ReplicaStore(disk), VoteStore(disk)
    await store.load()
    vote = await votes.load()
    election = Election(
        MasterAddress(settings.me),
        [MasterAddress(master) for master in settings.masters],
        lease_ms=settings.lease_ms,
        random=system.rng,
        now_ms=int(system.loop.time() * 1_000),
        term=Term(vote.term),
        voted_for=None if vote.voted_for is None else MasterAddress(vote.voted_for),
    )
    leadership = Leadership(election, system.loop)
    clock = wall_ms if wall_ms is not None else _wall_ms
    master = system.spawn(lambda: Master(settings, disk, store, votes, leadership, clock), "master")
    return master, leadership


async def _serve(system: ActorSystem, leadership: Leadership, stop: asyncio.Event | None) -> None:
    ends: list[asyncio.Future[object]] = [
        asyncio.create_task(_wait_end(system)),
        asyncio.create_task(leadership.wait_refused()),
    ]
    if stop is not None:
        ends.append(asyncio.create_task(_wait_stop(stop)))
    try:
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in ends:
            each.cancel()


async def _wait_resigned(master: ActorRef, leadership: Leadership) -> None:
    """Let another master lead before this one ends, which takes a fraction of the lease."""
    master.tell(StepDown("it was asked to end"))
    for _ in range(_RESIGN_POLLS):
        if not leadership.election.leads(leadership.now_ms()):
            return
        await asyncio.sleep(_RESIGN_POLL_S)


async def _wait_end(system: ActorSystem) -> object:
    return await system.wait_terminated()  # type: ignore[func-returns-value]


async def _wait_stop(stop: asyncio.Event) -> object:
    return await stop.wait()


def _lock(directory: Path) -> FileLock:
    """Lock the directory against a second master; the lock ends with the process."""
    make_private_directory(directory, "the master's directory")
    lock = FileLock(directory / ".lock")
    if not lock.take():
        lock.release()
        raise UnavailableError(
            "another master uses this directory",
            where=str(directory),
            remedy="give every master a directory of its own with master.directory",
        )
    return lock


def _readiness(leadership: Leadership) -> Readiness:
    leader = leadership.election.leader
    if leader is None:
        return Readiness(False, "no master leads, as far as this one knows")
    return Readiness(True, "leads" if leader == leadership.election.me else f"follows {leader}")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
