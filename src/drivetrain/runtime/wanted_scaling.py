"""The wanted scaling of a fragment of an application in a cluster, as a file.

Problem: a client asks the application master to scale a fragment, which runs in another process. Each of them
may die between any two steps, and no message is sure to arrive; yet a scaling that was promised to a client
must be done.

Design: one file in the state directory names the fragment and the number of partitions that its state is to
have. The attempt of that fragment reads it when it starts, and when it is asked to look. How many partitions
the state has is read from its checkpoint, and from nothing else, so an attempt that finds the number that is
wanted has nothing to do. Only the newest application master writes or removes the file.

What if we die here: the next attempt, and the next application master, continue with the file. A later
submission of the application, which has another id, forgets it.

Invariants:

1. One scaling at a time is wanted.
2. The file is removed only after the scaling has ended, successfully or not; if the state is in an object
   store, and the scaling has succeeded, only after a checkpoint there has it.

Called by `cluster.app_master.stream.stored_scalings` and `application_copies`, and by `running_versions` of
executors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.change.scaling_state import ScalingState
from drivetrain.runtime.durable_file import DurableFile, DurableRecord

FILE: Final = "wanted-scaling"
_IF_FULL: Final = "make room, and scale the fragment again: nothing has changed"


class WantedScaling(msgspec.Struct, frozen=True):
    """The scaling `state`, as it was requested, of the submitted application `app_id`.

    `is_done` if it has been done here, and stays until a copied checkpoint has it.
    """

    app_id: str
    state: ScalingState
    is_done: bool = False


class WantedScalingFile(DurableRecord[WantedScaling]):
    """The wanted scaling in the state directory `state` of an application."""

    def __init__(self, state: Path) -> None:
        file = DurableFile(
            state / FILE,
            "which fragment is to be scaled",
            if_damaged="delete the file, and scale the fragment again",
            if_full=_IF_FULL,
        )
        super().__init__(file, WantedScaling)
