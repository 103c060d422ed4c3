"""What errors of MySQL, MariaDB and their driver mean for users.

The problem: the servers number their errors, and some refusals are about a state that passes.

The design: one table from numbers to what happened and what to do; everything else is the server's refusal.

Called by `mysql`. Source: the error references of MySQL and MariaDB.
"""

from __future__ import annotations

from typing import Any

from drivetrain.api.connectors.sql_sink import MARKS
from drivetrain.connectors.sql.mysql_connection import MysqlServer
from drivetrain.errors import DiskFullError, DrivetrainError, OutputError, UnavailableError

_AGAIN = "the same command continues where it stopped"
_FULL = frozenset({1021, 1114, 1041})
"""No space on the disk, in the table space, or in memory."""
_PASSING = frozenset(
    {
        0, 2002, 2003, 2006, 2013, 2055, 4031,  # no connection, or it was lost
        1040, 1129, 1203, 1226,  # too many connections
        1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 3169,  # ended by the server
        1020, 1205, 1213,  # locks of others
        1047, 1290, 1792, 1836,  # not writable now: a node that joins, or a replica
    }
)  # fmt: skip
_LOGIN = frozenset({1045, 1251, 1275, 1698, 1862, 2049, 2059, 2061, 3118, 4151})
_NOT_THERE = frozenset({1049})
_RIGHTS = frozenset({1044, 1142, 1143, 1227, 1370, 1410})
_CONSTRAINTS = frozenset({1022, 1048, 1062, 1169, 1216, 1217, 1364, 1451, 1452, 1557, 1586, 3819, 4025})
_TOO_LONG = frozenset({1153})
_VALUES = frozenset({1264, 1265, 1292, 1366, 1406, 1690, 3140, 3732})
_LOGIN_REMEDY = (
    "look at the user, and at where its password comes from: MYSQL_PWD, an option file, or the environment "
    "variable that the address names"
)
_RIGHTS_REMEDY = (
    "grant this user select, insert, update, create and create temporary tables there (and delete, for "
    f'on_fresh="empty"), or create the tables beforehand: the sink\'s and {MARKS}'
)
_BATCH = "the same command continues with the refused batch"
_REFUSALS: tuple[tuple[frozenset[int], str, str], ...] = (
    (_LOGIN, "the database refuses the login", _LOGIN_REMEDY),
    (_NOT_THERE, "there is no such database", "create it, or correct the address"),
    (_RIGHTS, "this user may not do that in the database", _RIGHTS_REMEDY),
    (
        _CONSTRAINTS,
        "a constraint of the table does not hold for the rows",
        f"correct table or rows; {_BATCH}",
    ),
    (_VALUES, "a value does not fit into a column of the table", f"widen the column; {_BATCH}"),
    (_TOO_LONG, "a row is larger than the server accepts", f"raise max_allowed_packet there; {_AGAIN}"),
)


def mysql_meaning(error: Exception, server: MysqlServer) -> DrivetrainError | None:
    """The user's error for one of the driver or the server; None for any other error."""
    if not isinstance(error, server.driver.err.MySQLError):
        return None
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = " ".join(str(error.args[-1] if error.args else error).split()) or "the connection is lost"
    details: dict[str, Any] = {"where": server.where, "got": server.scrub(text)}
    if number in _FULL:
        remedy = f"free some space there; {_AGAIN}"
        return DiskFullError("the database has no space left", remedy=remedy, **details)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        remedy = "look at ssl_ca in the address, and at the certificate of the server"
        return OutputError("the certificate of the database is not accepted", remedy=remedy, **details)
    if number in _PASSING and not isinstance(error, server.driver.err.ProgrammingError):
        remedy = f"check that it runs, and who holds locks; {_AGAIN}"
        return UnavailableError("the database does not answer", remedy=remedy, **details)
    for numbers, what, remedy in _REFUSALS:
        if number in numbers:
            return OutputError(what, remedy=remedy, **details)
    remedy = f"correct the cause that the database reports; {_AGAIN}"
    return OutputError("the database refuses", remedy=remedy, **details)
