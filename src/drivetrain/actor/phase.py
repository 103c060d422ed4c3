"""The phases of an actor's life, and which may follow which.

Called by cells, which have one, and by `lifecycle`, which changes it and says what each is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class Phase(Enum):
    """Where an actor is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"


STARTING: Final = Phase.STARTING
RUNNING: Final = Phase.RUNNING
RESTARTING: Final = Phase.RESTARTING
STOPPING: Final = Phase.STOPPING
STOPPED: Final = Phase.STOPPED

TRANSITIONS: Final[Mapping[Phase, tuple[Phase, ...]]] = MappingProxyType(
    {
        STARTING: (RUNNING, RESTARTING, STOPPING),
        RUNNING: (RESTARTING, STOPPING),
        RESTARTING: (STARTING, STOPPING),
        STOPPING: (STOPPED,),
        STOPPED: (),
    }
)
