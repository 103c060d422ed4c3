"""A real object store on this machine for the tests: S3Proxy over a folder.

Its jar (pinned) is fetched once into the user's cache: by `make setup`, or `object_store.py fetch`.
A server that a test starts dies with the process that started it. A bucket is a folder of its directory.

Creating an object only if its name is free is atomic in it. Replacing one only if its tag has not changed is
not: of 12 writers that know the same tag, two or three succeed in a quarter of all rounds.

`scripts/versitygw.sh` runs tests with another server, versitygw, in its place: the variable `PROGRAM` has the
path of its program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.spark.session.jars import cached, fetch
from drivetrain.spark.session.java import java_program
from free_ports import free_port
from server_process import started
from stored_place import StoredPlace

PINS = {
    "org.gaul:s3proxy:4.1.0:jar-with-dependencies": (
        "a4d025969aaf796616ed4b1e2491d87d455ce84bb28cb9db086b2e6aaa68b48d"
    )
}
ACCESS_KEY, SECRET_KEY = "AKIDRIVETRAINTESTS", "a-secret-of-tests"
ENVIRONMENT = {"TESTS_S3_ACCESS": ACCESS_KEY, "TESTS_S3_SECRET": SECRET_KEY}
"""The variables that `S3Server.settings` refers to."""
PROGRAM = "TESTS_VERSITYGW"


class S3Server:
    """An S3Proxy in `directory`, on a free port; if it `is_open`, anyone may do anything there."""

    def __init__(self, directory: Path, *, is_open: bool = False) -> None:
        self.directory = directory
        self._is_open = is_open
        self.data = directory / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> S3Server:
        """Start it, and wait until it answers."""
        program = None if self._is_open else os.environ.get(PROGRAM)
        command = self._s3proxy() if program is None else self._versitygw(program)
        log = self.directory / "log.txt"
        self._process = started("the object store", command, log, self._answers)
        return self

    def _s3proxy(self) -> list[str]:
        properties = self.directory / "s3proxy.properties"
        chosen = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "none" if self._is_open else "aws-v2-or-v4",
            "s3proxy.identity": ACCESS_KEY,
            "s3proxy.credential": SECRET_KEY,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self.data),
            "jclouds.identity": "unused",
            "jclouds.credential": "unused",
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in chosen.items()))
        (jar,) = fetch(list(PINS), PINS)
        java = java_program()
        assert java is not None, "the object store needs Java"
        options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        return [java, *options, "-jar", str(jar), "--properties", str(properties)]

    def _versitygw(self, program: str) -> list[str]:
        place = f"127.0.0.1:{self.port}"
        keys = ("--access", ACCESS_KEY, "--secret", SECRET_KEY)
        return [program, *keys, "--region", "us-east-1", "--port", place, "--quiet", "posix", str(self.data)]

    def bucket(self, name: str) -> Path:
        """Make a bucket (three letters at least); the folder with its objects."""
        folder = self.data / name
        folder.mkdir(exist_ok=True)
        return folder

    def place(self, name: str) -> StoredPlace:
        """A new bucket as a place."""
        self.bucket(name)
        return StoredPlace(f"s3://{name}", self.sets())

    def kill(self) -> None:
        """End it at once; it keeps its data."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def settings(self, *, endpoint: str | None = None, retry_ms: int = 20_000) -> StoreSettings:
        """How it is reached; `endpoint` is that of a proxy in front of it."""
        return StoreSettings(
            endpoint=endpoint or self.endpoint,
            region="us-east-1",
            access_key="${TESTS_S3_ACCESS}",
            secret_key="${TESTS_S3_SECRET}",
            timeout_ms=5_000,
            retry_ms=retry_ms,
        )

    def sets(self, endpoint: str | None = None) -> dict[str, str]:
        """The same as keys of a configuration."""
        return {
            "s3.endpoint": endpoint or self.endpoint,
            "s3.region": "us-east-1",
            "s3.access-key": "${TESTS_S3_ACCESS}",
            "s3.secret-key": "${TESTS_S3_SECRET}",
            "s3.timeout": "5 s",
            "s3.retry-for": "20 s",
        }

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.endpoint, timeout=1).close()
        except urllib.error.HTTPError:
            return True  # it requires credentials, so it runs
        except OSError:
            return False
        return True


if __name__ == "__main__":
    if sys.argv[1:] == ["fetched"]:
        sys.exit(cached(list(PINS)) is None)
    print(*fetch(list(PINS), PINS))
