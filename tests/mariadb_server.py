"""A MariaDB server for tests: in a directory of its own, started, killed and stopped by them."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from free_ports import free_port
from server_process import DIE_WITH_PARENT

START_S = 60.0


class MariadbServer:
    """One server on a port of the loopback interface; `start` it first, and `close` it last.

    If root runs the tests, the server runs as the user `mysql`, which Debian's package makes.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="drivetrain-mariadb-"))
        self.port = 0
        self.password = secrets.token_hex(8)
        self.authority: Path | None = None
        """The certificate of the authority that signed the server's, if there is one."""
        self._data = self.directory / "data"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Create the data directory if there is none, and start the server; it answers when this returns."""
        if not self._data.exists():
            self._made()
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *DIE_WITH_PARENT, _program("mariadbd"), "--no-defaults", f"--datadir={self._data}",
                    f"--port={self.port}", "--bind-address=127.0.0.1",
                    f"--socket={self.directory / 'socket'}", f"--pid-file={self.directory / 'pid'}",
                    f"--tmpdir={self.directory}",
                    "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--skip-name-resolve",
                    *options,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, **_unprivileged(),
            )  # fmt: skip
        self._wait()

    def kill(self) -> None:
        """SIGKILL, as if it had crashed. Its data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def close(self) -> None:
        """Kill the server, if it runs, and remove its data."""
        self.kill()
        shutil.rmtree(self.directory)

    def url(
        self, database: str, variable: str | None = None, user: str = "root", *, scheme: str = "mysql"
    ) -> str:
        """The address of a database, with the password in an environment variable or the superuser's own."""
        password = self.password if variable is None else f"${{{variable}}}"
        return f"{scheme}://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def dsn(self, database: str) -> str:
        """The address of a database, with the superuser's password."""
        return f"mariadb://root:{self.password}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str | None = None, **more: Any) -> Any:
        """A connection of the superuser that commits every statement; names are quoted with `"`."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", password=self.password, database=database,
            charset="utf8mb4", autocommit=True, sql_mode="ANSI_QUOTES,STRICT_ALL_TABLES",
            ssl_ca=self.authority and str(self.authority), **more,
        )  # fmt: skip

    def run(self, statement: str, database: str | None = None) -> list[Any]:
        """Run a statement as the superuser; returns its rows, if any."""
        with closing(self.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def _made(self) -> None:
        self.port = free_port()
        if not os.geteuid():
            user = pwd.getpwnam("mysql")
            os.chown(self.directory, user.pw_uid, user.pw_gid)
        done = subprocess.run(
            [
                _program("mariadb-install-db"), "--no-defaults", f"--datadir={self._data}",
                # A server that starts removes other servers' temporary tables from the directory it shares.
                f"--tmpdir={self.directory}",
                "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
            ],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=self.directory, timeout=120,
            check=False, **_unprivileged(),
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"mariadb-install-db failed: {done.stdout}\n{done.stderr}")
        secret = self.directory / "secret.sql"
        secret.write_text(
            f"create or replace user root@'127.0.0.1' identified by '{self.password}';\n"
            "grant all on *.* to root@'127.0.0.1' with grant option;\n"
        )
        secret.chmod(0o644)
        self.start(f"--init-file={secret}")
        self.kill()
        secret.unlink()

    def _wait(self) -> None:
        import pymysql

        until = time.monotonic() + START_S
        while True:
            assert self._process is not None
            try:
                self.connect().close()
            except pymysql.err.MySQLError:
                if self._process.poll() is not None or time.monotonic() > until:
                    text = (self.directory / "log").read_text()[-3000:]
                    self.kill()
                    raise RuntimeError(f"MariaDB does not start:\n{text}") from None
                time.sleep(0.05)
            else:
                return


def _unprivileged() -> dict[str, Any]:
    return {} if os.geteuid() else {"user": "mysql", "group": "mysql", "extra_groups": []}


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise RuntimeError(f"{name} is missing: `make setup` installs MariaDB's server")
    return found
