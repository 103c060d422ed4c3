"""Azure's blob storage on this machine for the tests: Azurite, Microsoft's emulator, in memory.

It is a package of npm, of a pinned version, which is fetched into the user's cache when it is first needed;
only tests of the nightly run need it. A server that a test starts dies with the process that started it.

Creating a blob only if its name is free is atomic in it, as it must be: measured with 12 writers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from email.utils import formatdate
from pathlib import Path

from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.user_cache import cache_directory
from free_ports import free_port
from server_process import started
from stored_place import StoredPlace

VERSION = "3.35.0"
ACCOUNT, ACCOUNT_KEY = "drivetraintests", base64.b64encode(b"a secret of the tests of drivetrain").decode()
ENVIRONMENT = {"TESTS_ABFS_KEY": ACCOUNT_KEY}
"""The variables that `AzureStore.settings` refers to."""


class AzureStore:
    """An Azurite on a free port, which forgets everything when it ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}/{ACCOUNT}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> AzureStore:
        """Start it, and wait until it answers."""
        command = ["node", str(fetched()), "--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        command += ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        command = ["env", f"AZURITE_ACCOUNTS={ACCOUNT}:{ACCOUNT_KEY}", *command]
        log = self.directory / "log.txt"
        self._process = started("Azurite", command, log, self._answers, directory=self.directory)
        return self

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def place(self, name: str) -> StoredPlace:
        """A new container (three letters at least) as a place."""
        date, version = formatdate(usegmt=True), "2021-08-06"
        signed = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{version}\n"
        signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        digest = hmac.digest(base64.b64decode(ACCOUNT_KEY), signed.encode(), hashlib.sha256)
        headers = {
            "x-ms-date": date,
            "x-ms-version": version,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        }
        url = f"{self.endpoint}/{name}?restype=container"
        urllib.request.urlopen(urllib.request.Request(url, None, headers, method="PUT"), timeout=10).close()
        return StoredPlace(f"abfs://{name}", self.sets())

    def settings(self, *, endpoint: str | None = None, retry_ms: int = 20_000) -> StoreSettings:
        """How it is reached; `endpoint` is that of a proxy in front of it."""
        return StoreSettings(
            abfs_endpoint=self.endpoint if endpoint is None else f"{endpoint}/{ACCOUNT}",
            abfs_account=ACCOUNT,
            abfs_account_key="${TESTS_ABFS_KEY}",
            abfs_timeout_ms=5_000,
            abfs_retry_ms=retry_ms,
        )

    def sets(self) -> dict[str, str]:
        """The same as keys of a configuration."""
        return {
            "abfs.endpoint": self.endpoint,
            "abfs.account": ACCOUNT,
            "abfs.account-key": "${TESTS_ABFS_KEY}",
            "abfs.timeout": "5 s",
            "abfs.retry-for": "20 s",
        }

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def fetched() -> Path:
    """Azurite's program, fetched into the user's cache if it is not there."""
    folder = cache_directory() / f"azurite-{VERSION}"
    program = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not program.is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=folder.parent))
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(aside), f"azurite@{VERSION}"]
        done = subprocess.run(install, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"Azurite could not be fetched:\n{done.stderr[-4000:]}")
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    return program


if __name__ == "__main__":
    if sys.argv[1:] == ["fetched"]:
        sys.exit(not (cache_directory() / f"azurite-{VERSION}").is_dir())
    print(fetched())
