"""How a process of the cluster meets the others: the list of masters, the secret, TLS.

Invariants:
1. The secret comes from DRIVETRAIN_SECRET or a file that only its owner can read, and is never shown.
2. TLS has all of its three files, or none.

Called by masters, workers, application masters, executors and clients when they start.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from drivetrain.actor.remote import RemoteSettings, TlsSettings
from drivetrain.config import Config
from drivetrain.config.catalog import cluster as keys
from drivetrain.errors import ConfigError

SECRET_VARIABLE: Final = "DRIVETRAIN_SECRET"  # noqa: S105 - the name of the variable

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


def remote_settings(
    config: Config, port: int = 0, *, environ: Mapping[str, str] | None = None
) -> RemoteSettings:
    """The settings for `attach_remote`: listen on `port` of `cluster.host`, 0 means any free one.

    `environ` None means the process's. Raises ConfigError and InsecureBindError.
    """
    return RemoteSettings.from_config(
        config, host=config[keys.HOST], port=port, secret=read_secret(config, environ), tls=_tls(config)
    )


def read_secret(config: Config, environ: Mapping[str, str] | None = None) -> str | None:
    """The secret that all processes share; None when there is none, which will do on loopback.

    Raises ConfigError for a file that cannot be read, is empty, or that others can read.
    """
    given = (os.environ if environ is None else environ).get(SECRET_VARIABLE, "").strip()
    if given:
        return given
    name = config[keys.SECRET_FILE]
    if not name:
        return None
    path = Path(name)
    try:
        mode = path.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(
                "others than its owner may read the file with the secret",
                where=name,
                expected="mode 600",
                got=f"mode {stat.S_IMODE(mode):o}",
                remedy=f"chmod 600 {name}, and make a new secret if somebody may have read it",
            )
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "the file with the secret cannot be read",
            where=name,
            got=str(error),
            remedy="correct cluster.secret-file",
        ) from error
    if not secret:
        raise ConfigError(
            "the file with the secret is empty",
            where=name,
            remedy="make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return secret


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
            remedy="set all three keys, or none to do without TLS",
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
