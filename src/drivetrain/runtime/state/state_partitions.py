"""The number of partitions that a fragment's state is divided into, according to Spark's log of its batches.

Design: Spark writes the number with the extent of every batch, and the next query uses it whatever its
configuration says. To divide a state again, Spark adds a batch that reads nothing: it has the extent of the
batch before it, and another number. So the checkpoint itself shows which of its batches are such divisions.

Called by `snapshots`, `checkpoint_parts` and `dropped_state`, and by scalings, queries and repairs. Needs no
Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def state_partitions(checkpoint: Path, batch_id: int | None = None) -> int | None:
    """The number of partitions after a batch (None: the newest committed one); None if it is not known."""
    if batch_id is None:
        batch_id = newest_commit(checkpoint)
        if batch_id < 0:
            return None
    extent = _extent(checkpoint, batch_id)
    return None if extent is None else recorded_partitions(extent[0])


def newest_commit(checkpoint: Path) -> int:
    """The newest batch that Spark has committed; -1: none."""
    return max((int(p.name) for p in (checkpoint / "commits").glob("*") if p.name.isdigit()), default=-1)


def is_division(checkpoint: Path, batch_id: int) -> bool:
    """Whether a batch has only divided the state again: it has no messages, and no output has seen it.

    False if Spark has deleted its record of the batch or of the one before.
    """
    before, after = _extent(checkpoint, batch_id - 1), _extent(checkpoint, batch_id)
    if before is None or after is None:
        return False
    numbers = recorded_partitions(before[0]), recorded_partitions(after[0])
    return None not in numbers and numbers[0] != numbers[1] and before[1] == after[1]


def state_bytes(checkpoint: Path) -> int:
    """How many bytes the files of a state take, with those of its last versions, which Spark keeps."""
    found = 0
    for path in (checkpoint / "state").rglob("*"):
        with suppress(FileNotFoundError):  # Spark deletes old ones
            found += path.stat().st_size if path.is_file() else 0
    return found


def recorded_partitions(conf: Mapping[str, Any]) -> int | None:
    """The number in Spark's record of a batch's configuration; None if it is not there."""
    return int(conf[SHUFFLE_PARTITIONS]) if SHUFFLE_PARTITIONS in conf else None


def _extent(checkpoint: Path, batch_id: int) -> tuple[dict[str, Any], list[str]] | None:
    """The configuration of a batch, and the ends of its inputs; None without a record that can be read.

    A damaged record is reported by the code that needs the extent itself.
    """
    try:
        _, metadata, *ends = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
        return json.loads(metadata).get("conf", {}), ends
    except (FileNotFoundError, ValueError):
        return None
