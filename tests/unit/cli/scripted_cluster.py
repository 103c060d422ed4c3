"""A scripted cluster over TCP on loopback, in a thread of its own, for the commands that talk to one."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from drivetrain.actor import ActorRef, ActorSystem, Message
from drivetrain.actor.remote import RemoteSettings, attach_remote
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.access.permissions import guard_of
from drivetrain.cluster.access.system_names import app_master_name
from drivetrain.cluster.messages.following import JobStatus
from free_ports import free_port

T = TypeVar("T")


def _world() -> ModuleType:
    # It is next to the tests of the client; test folders are not packages.
    name = "client_world"
    if name not in sys.modules:
        path = Path(__file__).resolve().parents[1] / "cluster" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


world = _world()


class ScriptedCluster:
    """Masters that listen and follow the script; a context manager."""

    def __init__(self, masters: int = 2, secret: str | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted-cluster")
        self._systems: list[ActorSystem] = []
        self._secret = secret
        self.world = world.World([f"127.0.0.1:{free_port()}" for _ in range(masters)])
        self.world.leader = self.world.places[0]

    @property
    def masters(self) -> str:
        return ",".join(self.world.places)

    def __enter__(self) -> ScriptedCluster:
        self._thread.start()
        for place in self.world.places:
            self.run(self._start_master(place))
        return self

    def __exit__(self, *_: object) -> None:
        for system in self._systems:
            self.run(system.terminate())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def later(self, when: Callable[[], bool], then: Callable[[], object]) -> Future[None]:
        """Once `when` holds, do `then`, in the cluster's thread; both may touch the world."""

        async def wait() -> None:
            while not when():
                await asyncio.sleep(0.01)
            then()

        return asyncio.run_coroutine_threadsafe(wait(), self._loop)

    def app_master(self, status: JobStatus, asked: list[Message] | None = None) -> ActorRef:
        async def start() -> ActorRef:
            name = app_master_name(status.app_id, status.epoch)
            return world.serve_app_master(await self._system(name, 0), status, asked)

        return self.run(start())

    def worker(self, name: str, logs: dict[str, bytes], app_id: str = "wc-1") -> None:
        async def start() -> None:
            system = await self._system("worker", 0)
            self.world.workers.append(world.worker_view(system, name, logs, app_id))

        self.run(start())

    async def _start_master(self, place: str) -> None:
        system = await self._system("master", int(place.split(":")[1]))
        system.spawn(lambda: world.ScriptedMaster(self.world, place), "master")

    async def _system(self, name: str, port: int) -> ActorSystem:
        system = ActorSystem(name)
        secret = self._secret
        keys = None if secret is None else Keyring(name, lambda: (secret,))
        await attach_remote(system, RemoteSettings(port=port, keys=keys, guard=guard_of(name)))
        self._systems.append(system)
        return system
