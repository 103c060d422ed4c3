"""The settings of an actor system's connections: address, security, limits and times.

Invariant: settings that would admit other machines without a shared secret cannot be created.

Called by programs that connect a system with `attach_remote`.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final

from drivetrain.actor.remote.inbound_message import Guard
from drivetrain.actor.remote.keys import Keys, SharedSecrets, require_secret_length
from drivetrain.actor.remote.remote_errors import InsecureBindError
from drivetrain.actor.remote.tls import TlsSettings
from drivetrain.config import Config
from drivetrain.config.catalog import actor as options
from drivetrain.errors import ConfigError

DEFAULT_FRAME_LIMIT_BYTES: Final = 10_485_760
SMALLEST_FRAME_LIMIT_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """The settings; the defaults are for one machine.

    `host` and `port` are how others reach this system, and where it listens unless `bind_host` or `bind_port`
    differ (in a container); port 0 lets the system choose, among `ports` if given. Off loopback `secret` is
    required, and both sides must have the same; `keys` replaces it with more detail: a new and an old secret,
    or keys of single peers. `tls` is optional anywhere. `guard` checks every message that arrives. Raises
    `InsecureBindError`, `ConfigError`.

    `frame_limit_bytes` bounds a message on the wire, `queue_limit` and `queue_limit_bytes` what waits for
    one other system. A heartbeat is sent every `heartbeat_interval_ms`; a watched system that is silent for
    `heartbeat_pause_ms` becomes suspect, and is declared dead at `threshold`. Connecting, with the
    handshake, may take `connect_timeout_ms`; after a failure the next attempt waits from `min_backoff_ms`,
    doubling up to `max_backoff_ms`. `max_handshakes` is how many connections may be in their handshake.
    Stopping takes `stop_timeout_ms` at most.
    """

    host: str = "127.0.0.1"
    port: int = 0
    bind_host: str | None = None
    bind_port: int | None = None
    ports: range | None = None
    secret: str | None = field(default=None, repr=False)
    keys: Keys | None = None
    tls: TlsSettings | None = None
    guard: Guard | None = None
    frame_limit_bytes: int = DEFAULT_FRAME_LIMIT_BYTES
    queue_limit: int = 100_000
    queue_limit_bytes: int = 64 * 2**20
    heartbeat_interval_ms: int = 1_000
    heartbeat_pause_ms: int = 6_000
    threshold: float = 12.0
    connect_timeout_ms: int = 5_000
    min_backoff_ms: int = 50
    max_backoff_ms: int = 2_000
    max_handshakes: int = 256
    stop_timeout_ms: int = 1_000

    def __post_init__(self) -> None:
        listens_on = self.bind_host or self.host
        if self.shared_keys is None and not (is_loopback(self.host) and is_loopback(listens_on)):
            raise InsecureBindError(
                "an actor system that other machines can reach needs a shared secret",
                where=f"{listens_on}:{self.port}",
                expected="a secret, or a loopback address such as 127.0.0.1",
                remedy="set the same secret on every machine, or bind to 127.0.0.1",
            )
        if self.secret is not None:
            require_secret_length(self.secret)
        self._require(self.frame_limit_bytes >= SMALLEST_FRAME_LIMIT_BYTES, "frame_limit_bytes")
        self._require(0 <= self.port <= 65_535, "port")
        self._require(
            self.bind_port is None or (0 <= self.bind_port <= 65_535 and self.port > 0), "bind_port"
        )
        for name in (
            "queue_limit",
            "queue_limit_bytes",
            "heartbeat_interval_ms",
            "threshold",
            "connect_timeout_ms",
            "min_backoff_ms",
            "max_handshakes",
        ):
            self._require(getattr(self, name) > 0, name)
        self._require(self.heartbeat_pause_ms >= 0, "heartbeat_pause_ms")
        self._require(self.max_backoff_ms >= self.min_backoff_ms, "max_backoff_ms")

    @classmethod
    def from_config(
        cls,
        config: Config,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        bind_host: str | None = None,
        bind_port: int | None = None,
        ports: range | None = None,
        secret: str | None = None,
        keys: Keys | None = None,
        guard: Guard | None = None,
        tls: TlsSettings | None = None,
    ) -> RemoteSettings:
        """Take limits and times from the configuration; the caller provides addresses and secrets."""
        return cls(
            host=host,
            port=port,
            bind_host=bind_host,
            bind_port=bind_port,
            ports=ports,
            secret=secret,
            keys=keys,
            guard=guard,
            tls=tls,
            frame_limit_bytes=config[options.FRAME_LIMIT],
            queue_limit=config[options.REMOTE_QUEUE_LIMIT],
            queue_limit_bytes=config[options.REMOTE_QUEUE_LIMIT_BYTES],
            heartbeat_interval_ms=config[options.HEARTBEAT_INTERVAL],
            heartbeat_pause_ms=config[options.HEARTBEAT_PAUSE],
            threshold=config[options.THRESHOLD],
            connect_timeout_ms=config[options.REMOTE_CONNECT_TIMEOUT],
            min_backoff_ms=config[options.REMOTE_MIN_BACKOFF],
            max_backoff_ms=config[options.REMOTE_MAX_BACKOFF],
            max_handshakes=config[options.REMOTE_MAX_HANDSHAKES],
            stop_timeout_ms=config[options.REMOTE_STOP_TIMEOUT],
        )

    @property
    def shared_keys(self) -> Keys | None:
        """The keys that peers must know; None when any peer may connect."""
        if self.keys is not None:
            return self.keys
        return None if self.secret is None else SharedSecrets(self.secret)

    def _require(self, is_right: bool, name: str) -> None:
        if not is_right:
            raise ConfigError("not a possible value", where=name, got=str(getattr(self, name)))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a port that is bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
