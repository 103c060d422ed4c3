"""The former messages that a change of an application in a cluster waits for, as a file.

Problem: the messages from before a change are read by the executors that run the fragments which write its
new channels, for hours perhaps. They and the application master may die meanwhile, and no message between
them is sure to arrive.

Design: one file in the state directory names the proposed version, and the channels that each fragment is to
make. The attempts of these fragments read the file when they are asked to look at the versions. Only the
newest application master writes or removes it, under the same lock as it records versions.

What if we die here: the next application master removes the file, and the change is forgotten.

Invariants:

1. One history at a time is read.
2. A history is over once its version is recorded, even if its file is still there.

Called by `cluster.app_master.stream.stored_versions`, and by attempts of executors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.runtime.durable_file import DurableFile, DurableRecord

FILE: Final = "wanted-history"


class WantedHistory(msgspec.Struct, frozen=True):
    """The former messages of version `number`, which proposal `id` makes.

    `channels` are the new channels that each running fragment will write, by fragment.
    """

    id: str
    number: int
    channels: dict[str, tuple[str, ...]]

    def is_over(self, in_force: GraphVersion | None) -> bool:
        """Whether its version was recorded; `in_force` is the version in force."""
        return in_force is not None and in_force.number >= self.number


class WantedHistoryFile(DurableRecord[WantedHistory]):
    """The wanted history in the state directory `state` of an application."""

    def __init__(self, state: Path) -> None:
        file = DurableFile(
            state / FILE,
            "which former messages are to be read",
            if_damaged="delete the file, and ask for the change again",
            if_full="make room, and ask for the change again",
        )
        super().__init__(file, WantedHistory)
