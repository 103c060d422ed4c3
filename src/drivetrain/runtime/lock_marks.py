"""The marks that distinguish the holders of a lock, in the lock's file: see `ownership`.

Called by `ownership`, `fragment_lock` and executors.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from typing import Any

from drivetrain.errors import UnavailableError


class LostLockError(UnavailableError):
    """Another process has what this one ran: it was taken for lost, or its lock's file was deleted."""

    code = "lost-lock"


def new_mark(**more: Any) -> str:
    """The mark of a new holder of a lock: its machine, its process, and an id; as JSON."""
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "id": uuid.uuid4().hex, **more})


def lost_lock(what: str, where: str, mark: str) -> LostLockError:
    """The error of a process that no longer has `what`; `mark` is that of the present holder."""
    return LostLockError(
        f"another process has {what}",
        where=where,
        got=mark or "no holder: its lock's file was deleted",
        remedy="nothing to do: that one continues, and this one, which was suspended or lost its lock, ends",
    )
