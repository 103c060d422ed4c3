"""Runs examples/transfers.py as a process, and reads its two tables while they are written."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivetrain import run
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome

if TYPE_CHECKING:
    from mariadb_server import MariadbServer

TRANSFERS = Path(__file__).parents[3] / "examples" / "transfers.py"

TOTALS = """
select (select count(*) from ledger),
       (select coalesce(sum(amount), 0) from balances),
       (select coalesce(sum(changes), 0) from balances)
"""
WRONG = """
select account, amount from balances b where amount <> (
    select coalesce(sum(case when target = account then amount else 0 end), 0)
         - coalesce(sum(case when source = account then amount else 0 end), 0) from ledger l
    where l.source = b.account or l.target = b.account)
"""

Query = Callable[[str], list[Any]]


def settings_of(database: str, transfers: int) -> dict[str, str]:
    """The settings of the application."""
    return {"database": database, "transfers": str(transfers), "per-second": "400"}


def keys_of(directory: Path) -> dict[str, str]:
    """The configuration: small batches, so that the application advances in small steps on any machine."""
    return {
        "state.dir": str(directory / "state"),
        "checkpoint.interval": "300 ms",
        "run.max-batch-rows": "100",
    }


def run_here(directory: Path, database: str, transfers: int) -> RunOutcome:
    """Run it to its end in this process, on the existing Spark session."""
    app = load_application(str(TRANSFERS), settings_of(database, transfers))
    return run(app, Config.load(None, {}, keys_of(directory))).outcome


class Run:
    """The application in a process group of its own; its output goes to a file."""

    def __init__(self, directory: Path, database: str, transfers: int) -> None:
        self._log = directory / "out.log"
        command = [sys.executable, "-m", "drivetrain.cli", "run", str(TRANSFERS)]
        settings = {**settings_of(database, transfers), **keys_of(directory), "spark.master": "local[2]"}
        for name, value in {**settings, "spark.driver-memory": "1 GiB"}.items():
            command += ["--set", f"{name}={value}"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def kill(self) -> None:
        """Kill all of it at once."""
        with suppress(ProcessLookupError):  # it may have ended
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def output(self) -> str:
        """Its output so far."""
        return self._log.read_text()


class Reader(threading.Thread):
    """Reads both tables in one query, continually; `wrong` collects answers that must not occur."""

    def __init__(self, query: Query) -> None:
        super().__init__(daemon=True)
        self._query = query
        self._over = threading.Event()
        self.reads = 0
        self.ledger = 0
        self.wrong: list[Any] = []

    def run(self) -> None:
        """Read until it is stopped."""
        while not self._over.is_set():
            answer = self._query(TOTALS)
            if answer:
                ledger, amounts, changes = answer[0]
                self.reads += 1
                self.ledger = ledger
                if amounts != 0 or changes != 2 * ledger:
                    self.wrong.append(answer[0])
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop reading."""
        self._over.set()
        self.join(60)


def of_sqlite(path: Path) -> Query:
    """Queries of a SQLite file; no rows as long as the tables do not exist."""

    def query(statement: str) -> list[Any]:
        try:
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60) as connection:
                return connection.execute(statement).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error) or "unable to open" in str(error):
                return []
            raise

    return query


def of_mariadb(server: MariadbServer, database: str) -> Query:
    """Queries of a MariaDB database, over one connection; no rows as long as the tables do not exist."""
    import pymysql

    connection = server.connect(database)

    def query(statement: str) -> list[Any]:
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return [tuple(map(int, row)) for row in cursor.fetchall()]
        except pymysql.err.ProgrammingError as error:
            if "doesn't exist" in str(error):
                return []
            raise

    return query


def of_postgresql(dsn: str) -> Query:
    """Queries of a PostgreSQL database; no rows as long as the tables do not exist.

    Over one connection: PostgreSQL starts a process for each.
    """
    import psycopg

    connection = psycopg.connect(dsn, autocommit=True)

    def query(statement: str) -> list[Any]:
        try:
            return connection.execute(statement).fetchall()
        except psycopg.errors.UndefinedTable:
            return []

    return query
