"""The pause of fragments in a cluster, for a version at an event time or with former messages, as a file.

Problem: such a version may be recorded only while these fragments stand between two batches, and none of
them may begin a batch of the version before once it is recorded. They run in several processes,
and each of these, and the application master, may die or freeze between any two steps.

Design: one file in the state directory pauses these fragments; it names the proposed version. While it is
there and the version is not recorded, no attempt of them begins a batch: attempts read it when they start,
and when they are asked to look at the versions. Only the newest application master writes or removes it,
under the same lock as it records versions.

What if we die here: the pause stays until the next application master begins, which removes it first.

Invariants:

1. There is one pause at a time.
2. A pause is over once its version is recorded, even if its file is still there.

Called by `cluster.app_master.stream.stored_versions`, and by attempts of executors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.runtime.durable_file import DurableFile, DurableRecord

FILE: Final = "handover-pause"


class HandoverPause(msgspec.Struct, frozen=True):
    """The fragments `touched` must stand between two batches, for version `number`, which proposal `id`
    makes.

    With `has_history` each of them stands once it has read its former messages up to its last batch.
    """

    id: str
    number: int
    touched: tuple[str, ...]
    has_history: bool = False

    def is_over(self, in_force: GraphVersion | None) -> bool:
        """Whether its version was recorded; `in_force` is the version in force."""
        return in_force is not None and in_force.number >= self.number


class HandoverPauseFile(DurableRecord[HandoverPause]):
    """The pause in the state directory `state` of an application."""

    def __init__(self, state: Path) -> None:
        file = DurableFile(
            state / FILE,
            "which fragments pause for a change",
            if_damaged="delete the file: the fragments continue, and the change is refused",
            if_full="make room, and ask for the change again",
        )
        super().__init__(file, HandoverPause)
