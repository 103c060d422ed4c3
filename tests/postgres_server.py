"""A PostgreSQL server for tests: in a directory of its own, started and stopped by them."""

from __future__ import annotations

import glob
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from free_ports import free_port

SUPERUSER = "postgres"


class PostgresServer:
    """One server on a port of the loopback interface; `start` it first, and `close` it last.

    PostgreSQL refuses to run as root: then it runs as the user `postgres`, which Debian's package creates
    and which must be able to reach the data. pytest's own directories are unsuitable: every run of pytest
    makes them private again.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="drivetrain-postgres-"))
        self.port = 0
        self.password = secrets.token_hex(8)
        self._data = self.directory / "data"

    def start(self) -> None:
        """Create the data directory if there is none, and start the server; it answers when this returns."""
        if not self._data.exists():
            self._made()
        options = f"-p {self.port} -k '' -h 127.0.0.1 -c fsync=off -c max_connections=50"
        self._run(
            "pg_ctl", "start", "-D", self._data, "-w", "-t", "60", "-l", self.directory / "log", "-o", options
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; `immediate` is as if it had crashed. Its data stays."""
        self._run("pg_ctl", "stop", "-D", self._data, "-w", "-m", mode)

    def close(self) -> None:
        """Stop the server, if it runs, and remove its data."""
        if (self._data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.directory)

    def dsn(self, database: str = "postgres", user: str = SUPERUSER, *, password: str | None = None) -> str:
        """The address of a database, with a password; the superuser's unless another is given."""
        return f"postgresql://{user}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def url(self, database: str, variable: str) -> str:
        """The address as an application declares it, with the password in an environment variable."""
        return f"postgresql://{SUPERUSER}:${{{variable}}}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> None:
        """Create a database."""
        self.run(f'create database "{name}"')

    def run(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run a statement as the superuser; returns its rows, if any."""
        import psycopg

        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _made(self) -> None:
        self.port = free_port()
        secret = self.directory / "secret"
        secret.write_text(self.password)
        self._give_away()
        self._run(
            "initdb", "-D", self._data, "-U", SUPERUSER, "-A", "scram-sha-256", "--pwfile", secret,
            "-E", "UTF8", "--locale", "C", "--no-sync",
        )  # fmt: skip
        secret.unlink()

    def _run(self, program: str, *arguments: object) -> None:
        told = [_binary(program), *map(str, arguments)]
        # The server inherits what pg_ctl has, so its output goes to a file: a pipe would stay open.
        with (self.directory / f"{program}.out").open("w+") as out:
            done = subprocess.run(
                told,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.directory,
                timeout=120,
                **_unprivileged(),
            )
            out.seek(0)
            if done.returncode:
                log = self.directory / "log"
                more = log.read_text()[-2000:] if log.exists() else ""
                raise RuntimeError(f"{program} failed: {out.read()}\n{more}")

    def _give_away(self) -> None:
        """Let the server's user reach and own the directory."""
        if os.geteuid():
            return
        user = pwd.getpwnam(SUPERUSER)
        for path in (self.directory, *self.directory.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid)


def _unprivileged() -> dict[str, Any]:
    return {} if os.geteuid() else {"user": SUPERUSER, "group": SUPERUSER, "extra_groups": []}


def _binary(program: str) -> str:
    """A program of the server's, which Debian does not put on the PATH."""
    installed = sorted(
        glob.glob(f"/usr/lib/postgresql/*/bin/{program}"), key=lambda path: int(path.split("/")[4])
    )
    found = installed[-1] if installed else shutil.which(program)
    if found is None:
        raise RuntimeError(f"{program} is missing: `make setup` installs PostgreSQL's server")
    return found
