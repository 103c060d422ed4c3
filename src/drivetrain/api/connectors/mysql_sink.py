"""The sink for MySQL and MariaDB: the declaration that a user writes.

The problem: the two servers speak one protocol, and users write the address of either. The password must not
appear in a plan, a log or the state directory.

The design: the modes, the key and the rules for `--fresh` are those of all SQL sinks
(`api.connectors.sql_sink`). The address is a URL with either scheme; the sink finds out which of them it is
when it connects.

Invariants: those of `api.connectors.sql_sink`.

Called by applications through `drivetrain.api.sinks`; read by the planner and by the adapters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final
from urllib.parse import parse_qsl, urlsplit

from drivetrain.api.connectors.sql_sink import SqlMode, SqlOnFresh, SqlSink
from drivetrain.api.durations import milliseconds
from drivetrain.api.names import names_of
from drivetrain.config.references import HOW, is_reference, set_apart

SCHEMES: Final = ("mysql", "mariadb")


@dataclass(frozen=True, kw_only=True)
class MysqlSink(SqlSink):
    """Writes rows to a table of the MySQL or MariaDB database at `url`; needs the extra `mysql`.

    `url` is `mysql://user@host:port/database` or `mariadb://…`, with options such as
    `?ssl_ca=/etc/ssl/db.pem`. The password comes from the environment variable `MYSQL_PWD`, from an option
    file (`?read_default_file=~/.my.cnf`), or from a reference in the address:
    `mysql://user:${NAME}@host/db` reads the environment variable `NAME`, and
    `mysql://user:${file:/run/secrets/db}@host/db` reads a file. Every process that connects resolves the
    reference for each connection. The whole `url` may be a reference, too.
    """

    url: str
    where: ClassVar[str] = "sinks.mysql"

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = "mysql://user@host:3306/database, or mariadb://…"
        if not self.url:
            raise self._wrong("a MySQL sink needs an address", expected)
        url, references = set_apart(self.url)
        if is_reference(self.url):
            return
        try:
            parts = urlsplit(url)
            password = parts.password
        except ValueError:
            raise self._wrong("the address of the database cannot be read", expected) from None
        options = [value for name, value in parse_qsl(parts.query) if name in ("password", "passwd")]
        if any(given not in references for given in (password, *options) if given):
            raise self._wrong(
                "there is a password in the address",
                "an address without one, or with a reference such as ${DB_PASSWORD} in its place",
                remedy=f"set MYSQL_PWD, or {HOW}: an application file is no place for secrets",
            )
        if parts.scheme not in SCHEMES:
            raise self._wrong("not the address of a MySQL database", expected, self.database)
        if not parts.path.strip("/"):
            raise self._wrong("the address names no database", expected, self.database)

    @property
    def database(self) -> str:
        """The address, without user and options."""
        if "://" not in self.url:
            return self.url
        parts = urlsplit(set_apart(self.url)[0])
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def mysql(
    url: str,
    table: str,
    *,
    mode: SqlMode = "append",
    key: Sequence[str] = (),
    newest: str | None = None,
    create: bool = True,
    on_fresh: SqlOnFresh | None = None,
    timeout: str = "30 s",
) -> MysqlSink:
    """Write rows to a table of a MySQL or MariaDB database, exactly once; see `SqlSink` and `MysqlSink`.

    Raises `GraphError` for invalid arguments, and for a literal password in `url`.

    >>> mysql("mariadb://app:${DB_PASSWORD}@db:3306/bank", "ledger").name
    'ledger in mariadb://db:3306/bank'
    """
    return MysqlSink(
        url=url,
        table=table,
        mode=mode,
        key=names_of(key),
        newest=newest,
        create=create,
        on_fresh=on_fresh,
        timeout_ms=milliseconds(timeout, "timeout"),
    )
