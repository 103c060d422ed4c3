"""What the errors of HDFS mean, and what to do about them.

The library passes on an exception of the name node as text, with the name of its Java class and a stack
trace. A request is tried again unless its error says that it will be refused again.

Called by `hdfs_store`. Source: the exceptions of Hadoop's ClientProtocol.
"""

from __future__ import annotations

import re
from typing import Final

from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.objects.object_store import StoreAccessError

_JAVA_ERROR: Final = re.compile(r'RPCError\("([\w.$]+)", "(.*?)(?:\\n|"\))', re.DOTALL)
_UNPROVEN: Final = re.compile(r"^(SASLError|GSSAPIError|NoSASLMechanism)")
_FINAL: Final = re.compile(r"Quota|ParentNotDirectory|InvalidPath|FSLimitException|IllegalArgument")


def final_error(error: Exception, what: str, where: str) -> Exception | None:
    """The error to raise; None if the request is to be tried again."""
    java = _JAVA_ERROR.search(str(error))
    kind = java[1].rpartition(".")[2] if java is not None else ""
    if kind == "AccessControlException":
        return StoreAccessError(
            "HDFS does not allow the request",
            where=where,
            got=f"{what}: {_shown(error)}",
            remedy="run as a user who may (HADOOP_USER_NAME, or that of the Kerberos ticket), or allow this "
            "one to write there (`hdfs dfs -chown`, `-chmod`); then run the same command again",
        )
    if _UNPROVEN.search(str(error)):
        return StoreAccessError(
            "HDFS does not accept the user",
            where=where,
            got=f"{what}: {_shown(error)}",
            remedy="get a Kerberos ticket (`kinit`, checked by `klist`), then run the same command again",
        )
    if "No NameNode hosts found" in str(error):
        return UserError(
            "the name service of HDFS is not known",
            where=where,
            expected="hdfs://HOST:PORT/NAME, or the name of a service in hdfs-site.xml",
            remedy="add the port, or set hdfs.config-dir to the directory with hdfs-site.xml",
        )
    if _FINAL.search(kind):
        return UserError(
            "HDFS refuses a request",
            where=where,
            got=f"{what}: {_shown(error)}",
            remedy="choose another place, or have the limit of this one raised",
        )
    return None


def unavailable(error: Exception, what: str, where: str) -> UnavailableError:
    """The error after requests were tried long enough."""
    if "SafeMode" in str(error):
        return UnavailableError(
            "HDFS is in safe mode, in which it only reads",
            where=where,
            got=f"{what}: {_shown(error)}",
            remedy="wait until it ends, which it does when enough data nodes have reported (`hdfs dfsadmin "
            "-safemode get`), or end it (`-safemode leave`); then run the same command again: it continues",
        )
    return UnavailableError(
        "HDFS does not answer",
        where=where,
        got=f"{what}: {_shown(error)}",
        remedy="check host and port of the name node, that it runs and has data nodes, and the network "
        "(`drivetrain doctor` with the place), then run the same command again: it continues; hdfs.retry-for "
        "is how long to try",
    )


def _shown(error: Exception) -> str:
    """HDFS's own message without its stack trace."""
    java = _JAVA_ERROR.search(str(error))
    if java is not None:
        return f"{java[1].rpartition('.')[2]}: {java[2]}"[:400].replace('\\"', '"')
    return str(error).strip().splitlines()[0][:400] if str(error).strip() else type(error).__name__
