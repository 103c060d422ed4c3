"""The settings of a master: its address, the other masters, times and limits."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from drivetrain.actor.remote.remote_settings import DEFAULT_FRAME_LIMIT_BYTES
from drivetrain.cluster.connection import masters_of
from drivetrain.cluster.messages.replication import CHUNK_BYTES
from drivetrain.config import Config
from drivetrain.config.catalog import actor as actor_keys
from drivetrain.config.catalog import cluster as cluster_keys
from drivetrain.config.catalog import master as keys
from drivetrain.core.cluster.record_limits import RecordLimits
from drivetrain.errors import ConfigError

_MESSAGE_SHARE = 8


@dataclass(frozen=True, slots=True)
class MasterSettings:
    """`me` is one of `masters`, all as `host:port`; times in ms. See `config.catalog.master`."""

    me: str
    masters: tuple[str, ...]
    lease_ms: int = 2_000
    quorum_timeout_ms: int = 5_000
    gossip_interval_ms: int = 1_000
    app_master_restarts: int = 5
    app_master_window_ms: int = 600_000
    app_master_timeout_ms: int = 30_000
    app_master_slots: int = 0
    worker_grace_ms: int = 1_000
    max_clock_difference_ms: int = 10_000
    kept_applications: int = 1_000
    code_grace_ms: int = 600_000
    frame_limit_bytes: int = DEFAULT_FRAME_LIMIT_BYTES
    most_tombstones: int = 1_000

    @property
    def chunk_bytes(self) -> int:
        """The approximate limit for bytes of entries, of a digest or of a listing in one message."""
        return min(CHUNK_BYTES, self.frame_limit_bytes // _MESSAGE_SHARE)

    @property
    def limits(self) -> RecordLimits:
        """Limits for the record of one application, so that it fits a message with room to spare."""
        return RecordLimits.within(self.frame_limit_bytes)

    @property
    def quorum(self) -> int:
        """The number of masters that form a majority."""
        return len(self.masters) // 2 + 1

    @property
    def peers(self) -> tuple[str, ...]:
        """The other masters."""
        return tuple(master for master in self.masters if master != self.me)

    @property
    def list_id(self) -> int:
        """A checksum of the list, whatever its order."""
        return zlib.crc32(",".join(sorted(self.masters)).encode())

    @classmethod
    def from_config(cls, config: Config) -> MasterSettings:
        """Read the configuration; raises `ConfigError` when this master is not in `cluster.masters`."""
        masters = tuple(masters_of(config))
        return cls(
            me=_me(masters, config[cluster_keys.HOST], config[keys.PORT]),
            masters=masters,
            lease_ms=config[keys.LEASE],
            quorum_timeout_ms=config[keys.QUORUM_TIMEOUT],
            gossip_interval_ms=config[keys.GOSSIP_INTERVAL],
            app_master_restarts=config[keys.APP_MASTER_RESTARTS],
            app_master_window_ms=config[keys.APP_MASTER_WINDOW],
            app_master_timeout_ms=config[keys.APP_MASTER_TIMEOUT],
            app_master_slots=config[keys.APP_MASTER_SLOTS],
            worker_grace_ms=config[keys.WORKER_GRACE],
            max_clock_difference_ms=config[keys.MAX_CLOCK_DIFFERENCE],
            kept_applications=config[keys.KEPT_APPLICATIONS],
            code_grace_ms=config[keys.CODE_GRACE],
            frame_limit_bytes=config[actor_keys.FRAME_LIMIT],
        )


def split_place(place: str) -> tuple[str, int]:
    """Split `host:port`; removes brackets around an IPv6 address."""
    host, _, port = place.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _me(masters: tuple[str, ...], host: str, port: int) -> str:
    mine = [place for place in masters if split_place(place)[0] == host]
    if port:
        mine = [place for place in mine if split_place(place)[1] == port]
    if len(mine) == 1:
        return mine[0]
    wanted = f"{host}:{port}" if port else host
    raise ConfigError(
        f"cluster.masters does not contain {wanted}"
        if not mine
        else f"cluster.masters has {host} several times",
        where=cluster_keys.MASTERS.name,
        expected="this machine's cluster.host, with master.port if it is there more than once",
        got=", ".join(masters),
        remedy="write the same list everywhere; set cluster.host and master.port to this one's entry",
    )
