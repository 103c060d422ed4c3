"""The Redis server of a sink: connecting, running its scripts, and what its errors mean.

The problem: a server may restart at any moment, also between running a script and answering. Many refusals
pass (it loads its data, a replica is being promoted), others need the user.

The design: a script is repeated as long as the server is away, up to the timeout, since the scripts recognize
what they have done. The client repeats nothing itself. Passwords are resolved when connecting.

Before anything runs, `check` refuses servers on which the sink cannot keep its promise: nodes of a cluster,
replicas, and servers that may delete any key when memory is short.

Called by `redis_writer`. Source: the manuals of Redis and redis-py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from drivetrain.api.connectors.redis_sink import RedisSink
from drivetrain.config.references import is_reference, scrubbed, set_apart
from drivetrain.connectors.database_address import secret_of, with_secrets
from drivetrain.errors import (
    DiskFullError,
    DrivetrainError,
    MissingDependencyError,
    OutputError,
    UnavailableError,
)
from drivetrain.runtime.growing_pauses import GrowingPauses

log = logging.getLogger("drivetrain.redis")

Work = TypeVar("Work")

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_LEAST = (6, 0)
_AGAIN = "the same command continues where it stopped"
_PASSING = ("LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "BUSY", "TRYAGAIN", "CLUSTERDOWN")
_RIGHTS = ("NOPERM", "no permissions", "can't access at least one of the keys", "can't run this command")
_LOGIN = (
    "NOAUTH",
    "WRONGPASS",
    "invalid username-password",
    "without any password configured",
    "AUTH failed",
)


@dataclass(frozen=True)
class RedisMark:
    """What a sink's mark says: whose it is, the last batch, how many rows in total."""

    token: str
    batch: int
    rows: int


class RedisServer:
    """One server; connects when it is first asked."""

    def __init__(self, sink: RedisSink) -> None:
        self._sink = sink
        self._where = sink.name
        self._redis = _driver()
        self._client: Any = None

    # -- asking ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise unless the server answers, and the sink can be exactly once on it."""
        info: dict[str, Any] = self.asked(lambda client: client.info())
        version = str(info.get("redis_version", "0"))
        if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _LEAST:
            raise self._refused(
                "this version of Redis is too old", "6.0 or later", version, "use a newer server"
            )
        if int(info.get("cluster_enabled", 0)):
            raise self._refused(
                "this server is a node of a Redis Cluster, and a transaction cannot span several nodes",
                "one server, which may have replicas",
                "cluster_enabled:1",
                "write to a server without cluster mode",
            )
        if info.get("role") == "slave":
            raise self._refused(
                "this server is a replica",
                "the primary server",
                "role:slave",
                "name the primary in the address",
            )
        policy = str(info.get("maxmemory_policy", ""))
        if policy.startswith("allkeys-") and int(info.get("maxmemory", 0)) and self._sink.on_loss == "stop":
            raise self._refused(
                "the server may delete any key when memory is full, also the record of what was published",
                "maxmemory-policy noeviction, or one of volatile-…",
                policy,
                'change the policy, or accept losses with on_loss="continue" in the sink',
            )
        if not int(info.get("aof_enabled", 1)):
            log.warning(
                "%s: the server does not log commands (appendonly no): in a crash it may lose more than the "
                "sink keeps, everything since its last snapshot",
                self._where,
            )

    def mark(self, key: str) -> RedisMark | None:
        """The mark under a key, or None."""
        token, batch, rows = self.asked(lambda client: client.hmget(key, "token", "batch", "rows"))
        return None if token is None else RedisMark(token.decode(), int(batch), int(rows or 0))

    def delete(self, *keys: str) -> None:
        """Delete keys, in one step."""
        self.retried(lambda client: client.delete(*keys))

    def script(self, text: str, key: str, arguments: Sequence[str | int | bytes]) -> list[Any]:
        """Run a script on the mark `key`; retries while the server is away.

        Raises `OutputError`, or `UnavailableError` after the timeout.
        """
        reply = self.retried(lambda client: client.eval(text, 1, key, *arguments))
        return reply if isinstance(reply, list) else [reply]

    def asked(self, work: Callable[[Any], Work]) -> Work:
        """The result of `work`; raises at once if the server does not answer."""
        try:
            return work(self._connected())
        except Exception as error:
            meant = self.meaning(error)
            if meant is None:
                raise
            raise meant from None

    def retried(self, work: Callable[[Any], Work]) -> Work:
        """The result of `work`, which is repeated while the server is away."""
        for_s = self._sink.timeout_ms / 1000
        pauses = GrowingPauses(for_s, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
        while True:
            try:
                return self.asked(work)
            except UnavailableError as error:
                if pauses.are_over:
                    raise
                log.warning("%s; trying again", error.what if error.got is None else error.got)
            pauses.wait()

    def meaning(self, error: Exception) -> DrivetrainError | None:
        """The user's error for one of the client or the server; None for any other error."""
        known = self._redis.exceptions
        if not isinstance(error, known.RedisError):
            return None
        text = scrubbed(" ".join(str(error).split()))
        details: dict[str, Any] = {"where": self._where, "got": text}
        if isinstance(error, known.AuthenticationError) or any(sign in text for sign in _LOGIN):
            remedy = (
                "look at the user, and at where its password comes from: REDISCLI_AUTH, or the environment "
                "variable that the address names"
            )
            return OutputError("Redis refuses the login", remedy=remedy, **details)
        if isinstance(error, known.NoPermissionError) or any(sign in text for sign in _RIGHTS):
            remedy = (
                "let this user run eval, info, hget, hmget, hset, hincrby, hdel, pexpire, set, xadd, type "
                "and del on the keys of the sink and on drivetrain:*"
            )
            return OutputError("this user may not do that in Redis", remedy=remedy, **details)
        if isinstance(error, known.OutOfMemoryError) or "used memory > 'maxmemory'" in text:
            remedy = f"raise maxmemory there, or delete what is not needed; {_AGAIN}"
            return UnavailableError("Redis has no memory left", remedy=remedy, **details)
        if "MISCONF" in text:
            remedy = f"look at the disk and the log of Redis, which cannot save its data; {_AGAIN}"
            return DiskFullError(
                "Redis refuses to write, because it cannot save to its disk", remedy=remedy, **details
            )
        if "CERTIFICATE_VERIFY_FAILED" in text:
            remedy = "look at ssl_ca_certs in the address, and at the certificate of the server"
            return OutputError("the certificate of Redis is not accepted", remedy=remedy, **details)
        away = (known.ConnectionError, known.TimeoutError, known.ReadOnlyError, known.MasterDownError)
        if isinstance(error, away) or any(sign in text for sign in _PASSING):
            remedy = f"check that it runs, and is no replica; {_AGAIN}"
            return UnavailableError("Redis does not answer, or does not write now", remedy=remedy, **details)
        remedy = f"correct the cause that Redis reports; {_AGAIN}"
        return OutputError("Redis refuses", remedy=remedy, **details)

    # -- connecting ------------------------------------------------------------------------------------

    def _connected(self) -> Any:
        if self._client is None:
            pool = self._redis.ConnectionPool(**self._parameters())
            self._client = self._redis.Redis(connection_pool=pool)
        return self._client

    def _parameters(self) -> dict[str, Any]:
        """The address with passwords, in the client's form; raises `OutputError` if it is invalid."""
        from redis.backoff import NoBackoff
        from redis.connection import parse_url
        from redis.retry import Retry

        url, references = set_apart(self._sink.url)
        if is_reference(self._sink.url):
            url, references = secret_of(self._sink.url, self._where), {}
        try:
            given: dict[str, Any] = parse_url(url)
        except ValueError:
            # The client's message may repeat a password.
            raise self._refused(
                "the address of Redis cannot be read",
                "redis://user@host:6379/0, rediss://… for TLS, or unix:///path?db=0",
                None,
                "correct the address",
            ) from None
        for name, value in given.items():
            if isinstance(value, str):
                given[name] = with_secrets(value, references, self._where)
        if "password" not in given and os.environ.get("REDISCLI_AUTH"):
            given["password"] = os.environ["REDISCLI_AUTH"]
        seconds = max(1.0, self._sink.timeout_ms / 1000)
        return {
            "socket_timeout": seconds,
            "socket_connect_timeout": min(10.0, seconds),
            "client_name": "drivetrain",
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
        } | given

    def _refused(self, what: str, expected: str, got: str | None, remedy: str) -> OutputError:
        return OutputError(what, where=self._where, expected=expected, got=got, remedy=remedy)


def _driver() -> Any:
    try:
        import redis
    except ImportError as error:
        raise MissingDependencyError(
            "Redis sinks need the package redis", remedy="pip install 'drivetrain[redis]'"
        ) from error
    return redis
