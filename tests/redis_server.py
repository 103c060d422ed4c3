"""A Redis server for tests: in a directory of its own, started, killed and stopped by them."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from free_ports import free_port
from server_process import DIE_WITH_PARENT

START_S = 60.0


class RedisServer:
    """One server on a port of the loopback interface; `start` it first, and `close` it last.

    It logs every command before it answers, unless `options` change that.
    """

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.password = secrets.token_hex(8)
        self._options = ("--appendonly", "yes", "--appendfsync", "always", *options)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> RedisServer:
        """Start the server with the data of its directory; it answers when this returns."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *DIE_WITH_PARENT, _program("redis-server"), "--port", str(self.port),
                    "--bind", "127.0.0.1", "--dir", str(self.directory), "--save", "",
                    "--requirepass", self.password, *self._options,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._wait()
        return self

    def kill(self) -> None:
        """SIGKILL, as if it had crashed. Its files stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def close(self) -> None:
        """Kill the server, if it runs, and remove its data."""
        self.kill()
        shutil.rmtree(self.directory)

    def url(self, variable: str, *, user: str = "", database: int = 0) -> str:
        """The address as an application declares it, with the password in an environment variable."""
        return f"redis://{user}:${{{variable}}}@127.0.0.1:{self.port}/{database}"

    def dsn(self) -> str:
        """The address with the password."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def client(self, **more: Any) -> Any:
        """A client, which returns text."""
        import redis

        given = {"password": self.password, "decode_responses": True, "protocol": 2, **more}
        return redis.Redis(host="127.0.0.1", port=self.port, **given)

    def _wait(self) -> None:
        import redis

        until = time.monotonic() + START_S
        while True:
            assert self._process is not None
            try:
                self.client().ping()
            except redis.exceptions.ConnectionError:
                if self._process.poll() is not None or time.monotonic() > until:
                    self.kill()
                    log = (self.directory / "log").read_text()[-3000:]
                    raise RuntimeError(f"Redis does not start:\n{log}") from None
                time.sleep(0.02)
            else:
                return


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is missing: `make setup` installs Redis's server")
    return found
