"""The claim of a state directory to continue an application from its copied checkpoints.

Problem: two processes may believe that they run one application: one was taken for lost, and another one
continues from a copy. It must be known which of them wrote what is not on its own disk.

Design: a process that begins a state directory draws an owner for it, and notes after which number it has
claimed the next one (`copied_checkpoints`), and when the numbers began. These make the claim's name: names
of later claims sort behind those of earlier ones, also where numbers start from zero because the
store was emptied, and no two are equal.

Called by `copied_checkpoints` and `spark.prepare.opened_sinks`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from drivetrain.runtime.durable_file import DurableFile


class Claim(msgspec.Struct, frozen=True):
    """The owner that a state directory is, the newest number when it began, and when the numbers began, in
    milliseconds since 1970."""

    owner: str
    after: int
    series_ms: int

    @property
    def name(self) -> str:
        """The claim's name.

        >>> Claim("5f0c2a9be1", after=6, series_ms=1_790_000_000_000).name
        '01790000000000-0000000007-5f0c2a9b'
        """
        return f"{self.series_ms:014d}-{self.after + 1:010d}-{self.owner[:8]}"


class ClaimFile:
    """The file with the claim of a state directory."""

    def __init__(self, directory: Path) -> None:
        self._file: Final = DurableFile(
            directory / "copied-by",
            "the record of who copies checkpoints",
            if_damaged="delete the application's state directory: it then continues from the newest copy",
            if_full="make room, and try again",
        )

    def read(self) -> Claim | None:
        """The claim, None if there is none; raises InputError if the file is damaged."""
        return self._file.read_json(Claim)

    def write(self, claim: Claim) -> None:
        """Replace the claim, durably."""
        self._file.write(msgspec.json.encode(claim))


def claim_name(directory: Path) -> str:
    """The name of a state directory's claim; "" if its checkpoints were never copied."""
    claim = ClaimFile(directory).read()
    return "" if claim is None else claim.name
