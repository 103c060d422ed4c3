"""Spark's own logs of a query's batches, as files: which batches there are, and what each one took.

Problem: what a batch was made of must be known before it runs, after a crash, and to others than its query.

Design: Spark writes `offsets/<batch>` before a batch begins and `commits/<batch>` after its end, and
deletes what is older than the last 100. Each is a line of version, a line of metadata, and a line per
source.

Invariant: what Spark has finished writing is never changed here.

Called by `query` and by repairs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drivetrain.core.channel.channel_log import NO_BATCH
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore


def read_offsets(path: Path) -> tuple[dict[str, Any], list[str | None]]:
    """Spark's record of a batch: its metadata, and the end offset of every source, in plan order."""
    version, metadata, *offsets = path.read_text().splitlines()
    if version != "v1":
        raise DrivetrainError(
            f"Spark's offset log has version {version}, this is made for v1", where=str(path)
        )
    return json.loads(metadata), [None if o == "-" else o for o in offsets]


def batch_numbers(directory: Path) -> list[int]:
    """The ids of the batches that one of Spark's logs knows, in no order; none without a log."""
    if not directory.is_dir():
        return []
    return [int(p.name) for p in directory.iterdir() if p.name.isdigit()]


def clear_unfinished(checkpoint: Path) -> None:
    """Remove files that a crash did not let Spark finish; no query may run.

    Without a batch Spark takes anything in its logs for another query's, and refuses to start.
    """
    for log in ("offsets", "commits"):
        for unfinished in (checkpoint / log).glob(".*.tmp*"):
            unfinished.unlink()


def committed(checkpoint: Path) -> int:
    """The newest batch that Spark has committed, `NO_BATCH` if there is none."""
    return max(batch_numbers(checkpoint / "commits"), default=NO_BATCH)


def next_watermark_ms(checkpoint: Path) -> int:
    """The watermark that Spark knew at the end of the newest batch that it has committed; 0 for none."""
    newest = committed(checkpoint)
    if newest < 0:
        return 0
    _, metadata = (checkpoint / "commits" / str(newest)).read_text().splitlines()[:2]
    return int(json.loads(metadata).get("nextBatchWatermarkMs", 0))


def entries_after(checkpoint: Path, batch_id: int, inputs: tuple[str | None, ...]) -> dict[str, int]:
    """The entries that come after a batch, by the id of the channel or stored source; none before the first.

    `inputs` are the ids in the order of Spark's offsets. Raises FileNotFoundError for a batch that Spark has
    forgotten.
    """
    if batch_id < 0:
        return {}
    _, offsets = read_offsets(checkpoint / "offsets" / str(batch_id))
    found = {}
    for id, offset in zip(inputs, offsets, strict=False):
        told = json.loads(offset) if offset and id is not None else None
        if id is not None and isinstance(told, dict) and "entry" in told:
            found[id] = int(told["entry"])
    return found


def needed_input(
    checkpoint: Path, inputs: tuple[str | None, ...], outputs: Iterable[ChannelStore]
) -> dict[str, int]:
    """The first entry, by input, that is needed to make again what a fragment's channels still hold.

    Of what Spark has forgotten nothing is needed: it cannot be made again. While the oldest entry of a
    channel cannot be read all is needed: its reader has it made again.
    """
    try:
        oldest = [store.entry(store.start()).batch_id for store in outputs if store.length()]
    except MessageLossError:
        return {}
    if not oldest:
        return {}
    known = batch_numbers(checkpoint / "offsets")
    behind = [batch for batch in known if batch >= min(oldest) - 1]
    return entries_after(checkpoint, min(behind), inputs) if min(oldest) > 0 and behind else {}
