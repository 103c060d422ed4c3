"""The names of a cluster's actor systems, which identify the processes.

Design: masters, workers and clients have the name of their role. The name of an application master contains
its application and epoch, that of an executor also its launch, so that each launch has a name of its own. The
key that a process was given proves its name (see `keyring`); its permissions follow from the name (see
`permissions`).

Invariant: `read_name` returns what `app_master_name` and `executor_name` were given, the launch as its
digest; no two launches have the same name.

Called by every process of a cluster when it starts, and by keyring and permissions.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

MASTER: Final = "master"
WORKER: Final = "worker"
CLIENT: Final = "client"

_DIGEST_CHARACTERS: Final = 16
_APP_MASTER: Final = re.compile(r"app\.(?P<app_id>[A-Za-z0-9_-]+)\.(?P<epoch>[0-9]{1,18})")
_EXECUTOR: Final = re.compile(
    r"executor\.(?P<app_id>[A-Za-z0-9_-]+)\.(?P<epoch>[0-9]{1,18})\.(?P<launch>[0-9a-f]{16})"
)


class Role(Enum):
    """The kind of a process."""

    MASTER = MASTER
    WORKER = WORKER
    CLIENT = CLIENT
    APP_MASTER = "app"
    EXECUTOR = "executor"


@dataclass(frozen=True, slots=True)
class ProcessName:
    """A parsed system name: `app_id` and `epoch` of an application's process, `launch` of an executor."""

    role: Role
    app_id: str | None = None
    epoch: int | None = None
    launch: str | None = None

    def is_launch(self, launch_id: str) -> bool:
        """Whether this is the executor of that launch."""
        return self.launch == _digest(launch_id)


def app_master_name(app_id: str, epoch: int) -> str:
    """The system name of an application master."""
    return f"{Role.APP_MASTER.value}.{app_id}.{epoch}"


def executor_name(app_id: str, epoch: int, launch_id: str) -> str:
    """The system name of an executor."""
    return f"{Role.EXECUTOR.value}.{app_id}.{epoch}.{_digest(launch_id)}"


def request_prefix(app_id: str, epoch: int) -> str:
    """The prefix of an application master's slot request ids, and so of its executors' launch ids.

    It is unique, as names of applications contain no dot.
    """
    return f"{app_id}.{epoch}"


def read_name(system: str) -> ProcessName | None:
    """Parse a system name; None when it is not the name of a cluster's process."""
    if system in (MASTER, WORKER, CLIENT):
        return ProcessName(Role(system))
    match = _APP_MASTER.fullmatch(system)
    if match is not None:
        return ProcessName(Role.APP_MASTER, match["app_id"], int(match["epoch"]))
    match = _EXECUTOR.fullmatch(system)
    if match is not None:
        return ProcessName(Role.EXECUTOR, match["app_id"], int(match["epoch"]), match["launch"])
    return None


def _digest(launch_id: str) -> str:
    return hashlib.sha256(launch_id.encode()).hexdigest()[:_DIGEST_CHARACTERS]
