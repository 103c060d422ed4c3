"""The Redis sink: the declaration that a user writes.

The problem: rows become hashes or JSON texts, found by a key that is made of columns, or entries of a stream;
and Redis may lose what it has confirmed, since it writes to its disk later. The password must not appear in a
plan, a log or the state directory.

The design: a sink with `key` replaces, a sink with `stream` appends. Every batch is one transaction of Redis,
together with its number. Published batches are kept for `keep`, and are published again if Redis turns out to
have lost them.

Invariants:

1. Building a sink executes nothing and opens nothing; only the arguments themselves are checked.
2. A declaration contains no password: one in an address is refused; `${NAME}` is resolved when connecting.

Called by applications through `drivetrain.api.sinks`; read by the planner and by the adapter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from drivetrain.api.connectors.custom_sink import CustomSink, Guarantee
from drivetrain.api.durations import milliseconds
from drivetrain.api.names import names_of
from drivetrain.config.references import HOW, is_reference, set_apart
from drivetrain.errors import GraphError

RedisValue: TypeAlias = Literal["hash", "json"]
RedisOnFresh: TypeAlias = Literal["refuse", "keep", "empty"]
RedisOnLoss: TypeAlias = Literal["stop", "continue"]

SCHEMES: Final = ("redis", "rediss", "unix")


@dataclass(frozen=True, kw_only=True)
class RedisSink(CustomSink):
    """Writes rows to a Redis or Valkey server; needs the package's extra `redis`.

    With `key`, a row is a `value`: a `hash` with a field for each column, or a text in `json`. Its key is
    `prefix` and the columns of `key`, joined by `:` (in keys of several columns, `%` and `:` become `%25`
    and `%3A`). A row replaces the one with its key; a column that is null has no field. Of several rows of a
    batch with one key, the last one counts, or with `newest` the one with the largest value in that column.
    `expire` is the time after which Redis deletes a row that was not replaced.

    With `stream`, a row is an entry of that stream, which keeps about `max_length` entries (None: all).

    `keep` is how long published batches wait in the state directory, in case Redis loses them; `on_loss`
    decides what happens if it has lost more: `stop` the application, or `continue` without them. `on_fresh`
    decides what `--fresh` does to a stream with entries of the application: `refuse` to run, `keep` them, or
    `empty` the stream. `timeout` is how long the sink waits for a server that does not answer.
    """

    url: str
    key: tuple[str, ...] = ()
    prefix: str = ""
    value: RedisValue = "hash"
    stream: str | None = None
    max_length: int | None = None
    newest: str | None = None
    expire_ms: int | None = None
    keep_ms: int = 60_000
    on_loss: RedisOnLoss = "stop"
    on_fresh: RedisOnFresh | None = None
    timeout_ms: int = 30_000
    guarantee: ClassVar[Guarantee] = "exactly once"

    def __post_init__(self) -> None:
        self._check_address()
        if bool(self.key) == (self.stream is not None):
            raise _wrong(
                "a Redis sink replaces by key or appends to a stream", 'key="id", or stream="events"'
            )
        if self.stream is not None and (self.prefix or self.newest or self.expire_ms or self.value != "hash"):
            raise _wrong("prefix, value, newest and expire are for replacing rows", "key= beside them")
        if self.stream == "":
            raise _wrong("a stream needs a name", 'stream="events"')
        if self.max_length is not None and (self.stream is None or self.max_length < 1):
            raise _wrong(
                "max_length limits a stream", "stream= beside it, and at least 1", str(self.max_length)
            )
        if len(set(self.key)) < len(self.key):
            raise _wrong("a key has each column once", "different columns", ", ".join(self.key))
        if self.expire_ms is not None and self.expire_ms < 1:
            raise _wrong("rows would expire at once", "at least 1 ms", f"{self.expire_ms} ms")
        chosen = (
            ("value", self.value, ("hash", "json")),
            ("on_loss", self.on_loss, ("stop", "continue")),
            ("on_fresh", self.on_fresh, (None, "refuse", "keep", "empty")),
        )
        for name, given, allowed in chosen:
            if given not in allowed:
                raise _wrong(f"unknown {name}", " or ".join(filter(None, allowed)), repr(given))
        if self.on_fresh in ("refuse", "empty") and self.stream is None:
            raise _wrong("on_fresh is for streams", "no on_fresh: rows that are replaced by key are kept")

    @property
    def target(self) -> str:
        """The keys or the stream that the sink writes."""
        return f"stream {self.stream}" if self.stream is not None else f"{self.prefix}*"

    @property
    def server(self) -> str:
        """The address, without user and options."""
        if "://" not in self.url:
            return self.url
        parts = urlsplit(set_apart(self.url)[0])
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def name(self) -> str:
        """What is written, and to which server, as plans and errors show it."""
        return f"{self.target} in {self.server}"

    @property
    def why(self) -> str:
        """The reason for the guarantee."""
        return "rows and the batch's number are one transaction; what Redis loses later is published again"

    def _check_address(self) -> None:
        expected = "redis://host:6379/0, rediss://… for TLS, or unix:///path?db=0"
        if not self.url:
            raise _wrong("a Redis sink needs an address", expected)
        if is_reference(self.url):
            return
        url, references = set_apart(self.url)
        try:
            parts = urlsplit(url)
            password = parts.password
        except ValueError:
            raise _wrong("the address of Redis cannot be read", expected) from None
        options = [value for name, value in parse_qsl(parts.query) if name in ("password", "ssl_password")]
        if any(given not in references for given in (password, *options) if given):
            raise _wrong(
                "there is a password in the address",
                "an address without one, or with a reference such as ${REDIS_PASSWORD} in its place",
                remedy=f"set REDISCLI_AUTH, or {HOW}: an application file is no place for secrets",
            )
        if parts.scheme not in SCHEMES:
            raise _wrong("not the address of a Redis server", expected, self.server)


def _wrong(what: str, expected: str, got: str | None = None, remedy: str | None = None) -> GraphError:
    return GraphError(what, where="sinks.redis", expected=expected, got=got, remedy=remedy)


def redis(
    url: str,
    *,
    key: str | Sequence[str] = (),
    prefix: str = "",
    value: RedisValue = "hash",
    stream: str | None = None,
    max_length: int | None = None,
    newest: str | None = None,
    expire: str | None = None,
    keep: str = "1 min",
    on_loss: RedisOnLoss = "stop",
    on_fresh: RedisOnFresh | None = None,
    timeout: str = "30 s",
) -> RedisSink:
    """Write rows to Redis, by key or to a stream, exactly once; see `RedisSink`.

    Raises `GraphError` for invalid arguments, and for a literal password in `url`.

    >>> redis("redis://localhost:6379/0", key="word", prefix="count:").name
    'count:* in redis://localhost:6379/0'
    >>> redis("redis://localhost:6379/0", stream="alerts", max_length=10_000).name
    'stream alerts in redis://localhost:6379/0'
    """
    return RedisSink(
        url=url,
        key=names_of(key),
        prefix=prefix,
        value=value,
        stream=stream,
        max_length=max_length,
        newest=newest,
        expire_ms=None if expire is None else milliseconds(expire, "expire"),
        keep_ms=milliseconds(keep, "keep"),
        on_loss=on_loss,
        on_fresh=on_fresh,
        timeout_ms=milliseconds(timeout, "timeout"),
    )
