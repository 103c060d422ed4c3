"""The process of a worker: runs its actor system until it is asked to stop or has failed.

Called by `drivetrain worker`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

from drivetrain.actor import ActorRef, ActorSystem
from drivetrain.actor.remote import attach_remote
from drivetrain.cluster.access.system_names import WORKER
from drivetrain.cluster.connection import keyring_of, masters_of, remote_settings
from drivetrain.cluster.health import Readiness, health_server
from drivetrain.cluster.leader import require_secret
from drivetrain.cluster.messages.launching import ProcessKind
from drivetrain.cluster.worker.launcher import COMMANDS, ProcessLauncher
from drivetrain.cluster.worker.machine_load import Machine
from drivetrain.cluster.worker.worker import Worker
from drivetrain.cluster.worker.worker_messages import LeaveRequested
from drivetrain.cluster.worker.worker_settings import WorkerSettings
from drivetrain.config import Config
from drivetrain.core.liveness.supervision import Directive, SupervisionPolicy
from drivetrain.errors import UnavailableError

log: Final = logging.getLogger("drivetrain.worker")

_SECRET_CHECK_S: Final = 1.0
_END_MS: Final = 20_000


async def serve_worker(
    config: Config, stop: asyncio.Event, *, commands: Mapping[ProcessKind, Sequence[str]] = COMMANDS
) -> None:
    """Run a worker until `stop` is set and it has handed over (`worker.drain-timeout`).

    All processes that it launched have ended when this returns. `commands` are the interpreter's arguments
    for each kind. Raises ConfigError, InsecureBindError, BindError, UnavailableError when another worker has
    the directory, SecretRefusedError and LeaderTimeoutError.
    """
    masters, settings = masters_of(config), WorkerSettings.from_config(config)
    keyring = keyring_of(config, WORKER)
    # A worker actor that fails is not restarted: the process ends, with all its processes.
    system = ActorSystem(
        WORKER, config=config, supervision=SupervisionPolicy(directives={Exception: Directive.ESCALATE})
    )
    ends: list[UnavailableError] = []
    try:
        await attach_remote(system, remote_settings(config, system=WORKER))
        launcher = ProcessLauncher(system, settings, keyring, commands)
        await launcher.prepare()
        actor = Worker(settings, masters, launcher, Machine(), _wall_clock_ms, ends.append)
        worker = system.spawn(lambda: actor, "worker")
        log.info("worker %s at %s, %s slots", settings.name, system.address, settings.slots)
        async with health_server(config, lambda: _readiness(actor)):
            waits = [
                asyncio.ensure_future(_wait_left(system, worker, stop)),
                asyncio.ensure_future(system.wait_stopped(worker)),
                asyncio.ensure_future(system.wait_terminated()),
                asyncio.ensure_future(_wait_refused(system, masters)),
            ]
            done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in pending:
                wait.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
    finally:
        if not system.is_terminated:
            await system.terminate(timeout_ms=_END_MS)
    await system.wait_terminated()
    for wait in done:
        wait.result()
    if ends:
        raise ends[0]


async def _wait_left(system: ActorSystem, worker: ActorRef, stop: asyncio.Event) -> None:
    await stop.wait()
    worker.tell(LeaveRequested())
    await system.wait_stopped(worker)


async def _wait_refused(system: ActorSystem, masters: Sequence[str]) -> None:
    """Raise SecretRefusedError once all masters have refused the secret: waiting would not help."""
    while True:
        await asyncio.sleep(_SECRET_CHECK_S)
        require_secret(system, masters, by_all=True)


def _readiness(worker: Worker) -> Readiness:
    if worker.is_leaving:
        return Readiness(False, "leaves")
    if not worker.is_registered:
        return Readiness(False, "no leading master has registered this worker")
    return Readiness(True, "registered")


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
