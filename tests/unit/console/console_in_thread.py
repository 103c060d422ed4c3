"""A console of a scripted cluster, served over HTTP on loopback; the client of the cluster in it is the real
one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType

import httpx

from drivetrain.config import Config
from drivetrain.console.access.access_file import AccessFile
from drivetrain.console.access.roles import Role
from drivetrain.console.addresses import ConsoleAddress
from drivetrain.console.server import serve

SLOW_S = 60.0


def _scripted_cluster() -> ModuleType:
    # It is next to the tests of the commands; test folders are not packages.
    name = "scripted_cluster"
    if name not in sys.modules:
        path = Path(__file__).resolve().parents[1] / "cli" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


scripted = _scripted_cluster()


class ConsoleInThread:
    """A console that runs in a thread; `http` is signed in as an admin, by the printed link."""

    def __init__(
        self,
        directory: Path,
        cluster: scripted.ScriptedCluster,
        sets: dict[str, str],
        *,
        of_runs: bool = False,
    ) -> None:
        self.cluster = cluster
        self._of_runs = of_runs
        self.world = cluster.world
        self.directory = directory / "console"
        self.access = AccessFile(self.directory)
        self.config = Config.load(
            None,
            {},
            {
                "cluster.masters": cluster.masters,
                "client.timeout": "3 s",
                "console.port": "0",
                "console.directory": str(self.directory),
                **sets,
            },
        )
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self.address, self.token = "", ""
        self._thread = threading.Thread(target=self._run, name="console")
        self._thread.start()
        assert self._ready.wait(SLOW_S)
        if self._error is not None:
            raise self._error
        self.http = self.client(self.token)

    def client(self, token: str | None = None) -> httpx.Client:
        """A client of the console, with a token or without."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.address, headers=headers, timeout=SLOW_S, trust_env=False)

    def client_of(self, role: Role) -> httpx.Client:
        """A client that has a token of this role."""
        return self.client(self.access.add_token(f"a-{role.shown}", role))

    def stop(self) -> None:
        """Ask the console to end, as a signal does."""
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)

    def close(self) -> None:
        self.http.close()
        if self._thread.is_alive():
            self.stop()
        self._thread.join(SLOW_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        async def run() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await serve(self.config, self._stop, self._is_ready, of_runs=self._of_runs)

        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001 - raised again in the test
            self._error = error
            self._ready.set()

    def _is_ready(self, console: ConsoleAddress) -> None:
        self.address, self.token = console.address, console.token or ""
        self._ready.set()
