"""Connections to a MySQL or MariaDB server, all with the same settings.

The problem: the server's and the user's defaults decide how strings are quoted, whether values that do not
fit are cut, in which time zone times are, and how long a transaction of a machine that is gone keeps its
locks.

The design: every setting that matters is set for the session, at its start. Statements quote names by `"` and
know no escapes by `\\`; values that do not fit are errors; times are in UTC; a transaction sees what others
committed while it waited. The server closes a connection that is idle for a while, with its lock and its
transaction.

Durability cannot be set for a session: a server that may lose the newest commits is reported once.

Called by `mysql`. Source: the manuals of MySQL, MariaDB and PyMySQL.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from drivetrain.api.connectors.mysql_sink import SCHEMES
from drivetrain.config.references import is_reference, scrubbed, set_apart
from drivetrain.connectors.database_address import secret_of, with_secrets
from drivetrain.errors import MissingDependencyError, OutputError

log = logging.getLogger("drivetrain.sql")

_OPTIONS = frozenset(
    {
        "unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password", "ssl_verify_cert",
        "ssl_verify_identity", "ssl_disabled", "read_default_file", "read_default_group", "connect_timeout",
        "password",
    }
)  # fmt: skip
_FLAGS = frozenset({"ssl_verify_cert", "ssl_verify_identity", "ssl_disabled"})
_SQL_MODE = (
    "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION,"
    "ERROR_FOR_DIVISION_BY_ZERO"
)
_IDLE_S = 120
"""After this time without a statement, the server closes a connection."""
_LEAST = {"MariaDB": (10, 4), "MySQL": (8, 0, 17)}
"""Window functions, and a collation that compares bytes."""
_COLLATIONS = {"MariaDB": "utf8mb4_nopad_bin", "MySQL": "utf8mb4_0900_bin"}
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class MysqlServer:
    """The server of an address: `connection()` connects, the rest is known after the first connection."""

    def __init__(self, url: str, where: str, timeout_ms: int) -> None:
        self.where = where
        self.driver = _driver()
        self.collation = ""
        self.packet_bytes = 2**20
        self._url = url
        self._timeout_ms = timeout_ms
        self._is_checked = False

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection without a transaction; at the end it is closed, which undoes what is not committed."""
        given: dict[str, Any] = {"connect_timeout": max(2, min(10, self._timeout_ms // 1000))}
        given |= self._parameters()
        try:
            connection = self.driver.connect(
                **given, charset="utf8mb4", sql_mode=_SQL_MODE, autocommit=True, program_name="drivetrain"
            )
        except OSError as error:  # errors of the network are the driver's own
            raise OutputError(
                "a file for the connection to the database cannot be read",
                where=self.where,
                got=self.scrub(str(error)),
                remedy="look at the files that the address names; every process that connects needs them",
            ) from error
        try:
            self._prepare(connection)
            yield connection
        finally:
            if connection.open:
                connection.close()

    def group(self) -> str:
        """The server, database and user as text: sinks with the same can share a transaction."""
        try:
            given = self._parameters()
        except OutputError:
            return f"mysql:{self.where}"  # validate reports the error
        parts = (
            f"{name}={given.get(name, '')}" for name in ("host", "port", "unix_socket", "database", "user")
        )
        return f"mysql:{' '.join(parts)}"

    def scrub(self, text: str) -> str:
        """The text without passwords."""
        given = self._parameters()
        for secret in (given.get("password"), given.get("ssl_key_password")):
            if secret:
                text = text.replace(secret, "***")
        return scrubbed(text)

    # -- implementation --------------------------------------------------------------------------------

    def _prepare(self, connection: Any) -> None:
        seconds = max(1, self._timeout_ms // 1000)
        idle_s = max(_IDLE_S, 2 * seconds)
        with connection.cursor() as cursor:
            cursor.execute(
                f"set session time_zone = '+00:00', session innodb_lock_wait_timeout = {seconds}, "
                f"session lock_wait_timeout = {seconds}, session wait_timeout = {idle_s}"
            )
            # Commits of another process made while we waited for its lock must be visible.
            cursor.execute("set session transaction isolation level read committed")
            if not self._is_checked:
                self._check(connection.get_server_info(), cursor)
                self._is_checked = True

    def _check(self, version: str, cursor: Any) -> None:
        """Learn about the server; raises `OutputError` if it is too old."""
        kind = "MariaDB" if "mariadb" in version.lower() else "MySQL"
        # MariaDB's own number may follow one that old replicas understand.
        numbers = _VERSION.search(version.removeprefix("5.5.5-"))
        found = tuple(map(int, numbers.groups())) if numbers else ()
        least = ".".join(map(str, _LEAST[kind]))
        if found < _LEAST[kind]:
            raise OutputError(
                f"this version of {kind} is too old for the sink",
                where=self.where,
                expected=f"{kind} {least} or later",
                got=version,
                remedy="write to a newer server",
            )
        self.collation = _COLLATIONS[kind]
        cursor.execute("select @@max_allowed_packet, @@innodb_flush_log_at_trx_commit")
        self.packet_bytes, flushes = map(int, cursor.fetchone())
        if flushes not in (1, 3):
            log.warning(
                "%s: the server may lose the last second of results when it crashes, because "
                "innodb_flush_log_at_trx_commit is %s there; set it to 1",
                self.where,
                flushes,
            )

    def _parameters(self) -> dict[str, Any]:
        """The address with passwords, in the driver's form; raises `OutputError` if it is invalid."""
        url, references = set_apart(self._url)
        if is_reference(self._url):
            url, references = secret_of(self._url, self.where), {}
        try:
            parts = urlsplit(url)
            port, options = parts.port, dict(parse_qsl(parts.query))
        except ValueError:
            raise self._invalid(None) from None
        if parts.scheme not in SCHEMES or not parts.path.strip("/"):
            raise self._invalid(None)
        unknown = sorted(options.keys() - _OPTIONS)
        if unknown:
            raise self._invalid(f"the option {unknown[0]}")
        given: dict[str, Any] = {
            "host": parts.hostname,
            "port": port or 3306,
            "user": parts.username,
            "password": parts.password,
            "database": parts.path.strip("/"),
        }
        given = {name: unquote(value) if isinstance(value, str) else value for name, value in given.items()}
        given = {name: value for name, value in (given | options).items() if value is not None}
        for name, value in given.items():
            if isinstance(value, str):
                given[name] = with_secrets(value, references, self.where)
        return _typed(given)

    def _invalid(self, got: str | None) -> OutputError:
        # The address itself may be a secret.
        return OutputError(
            "the address of the database cannot be read",
            where=self.where,
            expected=f"mysql://user@host:3306/database or mariadb://…, with options of "
            f"{', '.join(sorted(_OPTIONS - {'password'}))}",
            got=got,
            remedy="correct the address",
        )


def _typed(given: dict[str, Any]) -> dict[str, Any]:
    for name in given.keys() & _FLAGS:
        given[name] = str(given[name]).lower() in ("1", "true", "yes", "on")
    if "connect_timeout" in given:
        given["connect_timeout"] = int(given["connect_timeout"])
    if "read_default_file" in given:
        given["read_default_file"] = os.path.expanduser(given["read_default_file"])
    elif "password" not in given and os.environ.get("MYSQL_PWD"):
        given["password"] = os.environ["MYSQL_PWD"]
    return given


def _driver() -> Any:
    try:
        import pymysql
    except ImportError as error:
        raise MissingDependencyError(
            "MySQL sinks need the package PyMySQL", remedy="pip install 'drivetrain[mysql]'"
        ) from error
    return pymysql
