"""A real MQTT broker for tests: Mosquitto, in a directory of its own, killed and started again by them."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from free_ports import free_port
from server_process import DIE_WITH_PARENT

START_S = 30.0
NOBODY = "nobody"


class MosquittoBroker:
    """One broker on a port of the loopback interface; `start` it first, and `close` it last.

    With `keeps` it writes sessions and messages to its disk at every change, which is slow. `more` are lines
    of its configuration, instead of one that lets everybody in; it can only read files of `directory`.
    """

    def __init__(self, *more: str, keeps: bool = False) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="drivetrain-mosquitto-"))
        self.port = free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self._lines = [
            f"listener {self.port} 127.0.0.1",
            f"persistence {str(keeps).lower()}",
            f"persistence_location {self.directory}/",
            "autosave_interval 1",
            "autosave_on_changes true",
            "max_queued_messages 1000000",
            f"log_dest file {self.directory}/log",
            *(line.format(here=self.directory) for line in more or ("allow_anonymous true",)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> MosquittoBroker:
        """Start it, and wait until it answers."""
        configuration = self.directory / "mosquitto.conf"
        configuration.write_text("".join(f"{line}\n" for line in self._lines))
        if not os.geteuid():
            user = pwd.getpwnam(NOBODY)
            for path in (self.directory, *self.directory.rglob("*")):
                os.chown(path, user.pw_uid, user.pw_gid)
        self._process = subprocess.Popen(
            [*DIE_WITH_PARENT, _program(), "-c", str(configuration)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **_unprivileged(),
        )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = self.directory / "log"
                raise RuntimeError(f"it does not start:\n{log.read_text()[-2000:] if log.exists() else ''}")
            time.sleep(0.02)
        return self

    def kill(self) -> None:
        """End it at once, with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def close(self) -> None:
        """End it, and remove its data."""
        self.kill()
        shutil.rmtree(self.directory)

    def publish(self, topic: str, *payloads: str | bytes, qos: int = 1, retain: bool = False) -> None:
        """Publish messages; the broker has acknowledged all when this returns."""
        import paho.mqtt.client as library

        client = library.Client(library.CallbackAPIVersion.VERSION2, protocol=library.MQTTv5)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        for sent in [client.publish(topic, payload, qos, retain) for payload in payloads]:
            sent.wait_for_publish(60)
            assert sent.is_published()
        client.disconnect()
        client.loop_stop()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


def _program() -> str:
    """Mosquitto, which Debian does not put on every user's PATH."""
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if found is None:
        raise RuntimeError("mosquitto is missing: `make setup` installs it")
    return found


def _unprivileged() -> dict[str, Any]:
    if os.geteuid():
        return {}
    user = pwd.getpwnam(NOBODY)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
