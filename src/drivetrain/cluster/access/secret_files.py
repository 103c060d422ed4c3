"""Reads the secret of the cluster for a process, again whenever it changes.

Problem: a secret has to be replaced while processes run, and they must not lose each other meanwhile.

Design: the file's status is checked before each handshake, and the file is read when it has changed. It has a
line for each secret: a new one above the old one for as long as both are in use. When the file becomes
unusable (deleted, or readable by others), a warning is logged and the last secrets stay in use. The
environment is read once.

Invariants:
1. The secret comes from DRIVETRAIN_SECRET or a file that only its owner can read, and is never shown.
2. There are at most `MOST_SECRETS`.

Called by `connection`.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from drivetrain.cluster.access.keyring import MOST_SECRETS, read_holding
from drivetrain.config import Config
from drivetrain.config.catalog import cluster as keys
from drivetrain.errors import ConfigError
from drivetrain.private_files import stamp_of

SECRET_VARIABLE: Final = "DRIVETRAIN_SECRET"  # noqa: S105 - the name of the variable

CREDENTIALS_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
"""Where systemd names the directory with the credentials of a service."""

log = logging.getLogger("drivetrain.cluster")

_MAKE_ONE: Final = "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"


def secrets_of(
    config: Config, environ: Mapping[str, str] | None = None
) -> Callable[[], tuple[str, ...]] | None:
    """Return a function that reads the current secrets, or keys derived from them.

    Returns None without a secret, which is enough on loopback. `environ` None means the process's
    environment. Raises ConfigError for a file that cannot be read, is empty or too long, or that others can
    read.
    """
    given = (os.environ if environ is None else environ).get(SECRET_VARIABLE, "").strip()
    if given:
        secrets = _lines(given, SECRET_VARIABLE)
        return lambda: secrets
    name = config[keys.SECRET_FILE]
    return SecretFile(Path(name)).read if name else None


class SecretFile:
    """The secrets in a file; the constructor raises ConfigError when the file is unusable."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._seen = stamp_of(path)
        self._secrets = _load(path)

    def read(self) -> tuple[str, ...]:
        """The secrets in the file, or those last read while the file is unusable."""
        seen = stamp_of(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                self._secrets = _load(self._path)
            except ConfigError as error:
                log.warning("the secret from before is still used: %s", error)
            else:
                log.info("read the secret again, as %s has changed", self._path)
        return self._secrets


def _load(path: Path) -> tuple[str, ...]:
    name = str(path)
    try:
        mode = path.stat().st_mode
        if mode & _refused_modes(path):
            raise ConfigError(
                "users other than the owner can read the file with the secret",
                where=name,
                expected="mode 600",
                got=f"mode {stat.S_IMODE(mode):o}",
                remedy=f"chmod 600 {name}, and make a new secret if someone may have read it",
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "the file with the secret cannot be read",
            where=name,
            got=str(error),
            remedy="correct cluster.secret-file",
        ) from error
    return _lines(text, name)


def _refused_modes(path: Path) -> int:
    """The bits of a mode that give others access.

    A file that systemd hands to a service (`LoadCredential=`) shows what its access control list allows in
    place of the group's rights: only the service itself. It is known by its directory, which systemd makes.
    """
    given = os.environ.get(CREDENTIALS_VARIABLE)
    is_credential = bool(given) and path.parent == Path(given or "") and not path.is_symlink()
    return stat.S_IRWXO | (stat.S_IWGRP | stat.S_IXGRP if is_credential else stat.S_IRWXG)


def _lines(text: str, where: str) -> tuple[str, ...]:
    secrets = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not secrets:
        raise ConfigError("the file with the secret is empty", where=where, remedy=_MAKE_ONE)
    if len(secrets) > MOST_SECRETS:
        raise ConfigError(
            "there are too many secrets",
            where=where,
            expected=f"at most {MOST_SECRETS} lines: a secret, and the previous one",
            got=f"{len(secrets)} lines",
        )
    for secret in secrets:
        read_holding(secret)
    return secrets
