"""Connects a process of the cluster to the others: the list of masters, keys, permissions, TLS.

Invariants:
1. The permissions of the sender's role decide about every message that arrives.
2. TLS has all of its three files, or none.

Called by masters, workers, application masters, executors and clients when they start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from drivetrain.actor.remote import RemoteSettings, TlsSettings
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.access.permissions import guard_of
from drivetrain.cluster.access.secret_files import SECRET_VARIABLE as SECRET_VARIABLE
from drivetrain.cluster.access.secret_files import secrets_of
from drivetrain.cluster.access.system_names import CLIENT
from drivetrain.config import Config
from drivetrain.config.catalog import cluster as keys
from drivetrain.errors import ConfigError

_PORTS: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_MASTER: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")


def parse_masters(text: str) -> list[str]:
    """Read "host:port,host:port" as a list of HOST:PORT in its order; raises ConfigError."""
    masters = [part.strip() for part in text.split(",") if part.strip()]
    for master in masters:
        match = _MASTER.fullmatch(master)
        if match is None or not 0 < int(match[2]) <= 65_535:
            raise _bad_masters("this is not the address of a master", master)
    if not masters:
        raise _bad_masters("the list of masters is empty", text)
    if len(set(masters)) != len(masters):
        raise _bad_masters("a master is named twice", text)
    return masters


def masters_of(config: Config) -> list[str]:
    """The masters of the configuration, see `parse_masters`."""
    return parse_masters(config[keys.MASTERS])


def parse_ports(text: str) -> range | None:
    """Read "7100-7199", or a single port, as the ports to choose from; None for the empty text, any port.

    Raises ConfigError.
    """
    if not text.strip():
        return None
    match = _PORTS.fullmatch(text.strip())
    first, last = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
    if not 0 < first <= last <= 65_535:
        raise ConfigError(
            "this is not a range of ports",
            where=keys.PORTS.name,
            expected="FIRST-LAST, between 1 and 65535",
            got=repr(text),
            remedy='write for example "7100-7199", or nothing to take any free ports',
        )
    return range(first, last + 1)


def remote_settings(
    config: Config, port: int = 0, *, system: str = CLIENT, environ: Mapping[str, str] | None = None
) -> RemoteSettings:
    """The settings for `attach_remote`, to listen on `port` of `cluster.host` or `cluster.bind-host`.

    Port 0 means a free one of `cluster.ports`; clients take any, as no process connects to them first.
    `system` is the name of the actor system (see `access.system_names`). `environ` None means the process's
    environment. Raises ConfigError and InsecureBindError.
    """
    return RemoteSettings.from_config(
        config,
        host=config[keys.HOST],
        port=port,
        bind_host=config[keys.BIND_HOST] or None,
        ports=None if system == CLIENT else parse_ports(config[keys.PORTS]),
        keys=keyring_of(config, system, environ),
        guard=guard_of(system),
        tls=_tls(config),
    )


def keyring_of(config: Config, system: str, environ: Mapping[str, str] | None = None) -> Keyring | None:
    """The keys of the process whose system has this name; None without a secret. Raises ConfigError."""
    read = secrets_of(config, environ)
    return None if read is None else Keyring(system, read)


def _tls(config: Config) -> TlsSettings | None:
    files = {key.name: config[key] for key in (keys.TLS_CERTIFICATE, keys.TLS_KEY, keys.TLS_AUTHORITY)}
    missing = [name for name, value in files.items() if not value]
    if len(missing) == len(files):
        return None
    if missing:
        raise ConfigError(
            "TLS needs a certificate, its key and an authority",
            where=", ".join(missing),
            expected="the path of a PEM file",
            got="nothing",
            remedy="set all three keys, or none to run without TLS",
        )
    certificate, key, authority = (Path(value) for value in files.values())
    return TlsSettings(certificate=certificate, key=key, authority=authority)


def _bad_masters(what: str, got: str) -> ConfigError:
    return ConfigError(
        what,
        where=keys.MASTERS.name,
        expected="HOST:PORT of every master, separated by commas",
        got=repr(got),
        remedy='write for example "10.0.0.1:7070,10.0.0.2:7070,10.0.0.3:7070"',
    )
