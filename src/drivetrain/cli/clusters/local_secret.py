"""The secret that every cluster needs, even on loopback.

Problem: every user of a machine can connect to its loopback ports, and a submission is code that runs as the
user who runs the cluster.

Design: `drivetrain local` creates a secret in its directory, readable by its owner only, and keeps it; the
other commands find it together with the masters. `drivetrain master` and `worker` refuse to run without one,
unless `cluster.without-secret` is set, for machines with a single user.

Called by `local_cluster` and `cluster_commands`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from pathlib import Path
from typing import Final

from drivetrain.cluster.access.secret_files import SECRET_VARIABLE, secrets_of
from drivetrain.config import Config
from drivetrain.config.catalog import cluster as keys
from drivetrain.durable import new_file, publish_new
from drivetrain.errors import ConfigError

log: Final = logging.getLogger("drivetrain.cluster")

_BYTES: Final = 32


def needs_secret(config: Config) -> bool:
    """Whether a cluster of this configuration has no secret but needs one."""
    return secrets_of(config) is None and not config[keys.WITHOUT_SECRET]


def make_secret(directory: Path) -> Path:
    """Return the file with the cluster's secret in `directory`, after creating it if it is missing."""
    path = (directory / "secret").resolve()
    if not path.exists():
        aside = path.with_name(f".secret.{os.getpid()}")
        # Synced before it has its name: an empty file would be kept, and no cluster starts with one.
        with new_file(aside) as file:
            file.write(f"{secrets.token_urlsafe(_BYTES)}\n".encode())
        with contextlib.suppress(FileExistsError):  # another command created it first: use that secret
            publish_new(aside, path)
        aside.unlink()
    return path


def require_secret(config: Config, process: str) -> None:
    """Raise ConfigError when a master or worker has no secret but needs one; log when it needs none."""
    if needs_secret(config):
        raise ConfigError(
            f"a {process} needs the shared secret of its cluster, on loopback as well",
            expected=f"a secret in {SECRET_VARIABLE}, or a file named by {keys.SECRET_FILE.name}",
            got="neither",
            remedy="make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'; or set "
            f"{keys.WITHOUT_SECRET.name}=true on a machine without other users",
        )
    if secrets_of(config) is None:
        log.warning(
            "without a secret every user of this machine can run code as the user of this %s", process
        )
