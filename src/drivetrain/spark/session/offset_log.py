"""Spark's own logs of a query's batches, as files: which batches there are, and the extent of each.

Problem: the extent of a batch must be known before it runs, after a crash, and outside its query.

Design: Spark writes `offsets/<batch>` before a batch begins and `commits/<batch>` after its end, and
deletes files older than the last 100. Each is a line with the version, a line of metadata, and a line per
source.

Spark does not sync its logs. What an output has of a batch must never have another extent than the batch that
runs again under its number: so the extent is synced before the outputs get anything (`make_durable`), and a
log that is older than what outputs have, from a backup perhaps, is refused (`require_newest`).

Invariant: files that Spark has finished writing are never changed here.

Called by `fragment_query`, `micro_batch_query` and repairs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from drivetrain.core.channel.channel_log import NO_BATCH
from drivetrain.durable import sync
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore


def read_offsets(path: Path) -> tuple[dict[str, Any], list[str | None]]:
    """Spark's record of a batch: its metadata, and the end offset of every source, in plan order."""
    version, metadata, *offsets = path.read_text().splitlines()
    if version != "v1":
        raise DrivetrainError(
            f"Spark's offset log has version {version}, Drivetrain expects v1", where=str(path)
        )
    return json.loads(metadata), [None if o == "-" else o for o in offsets]


def batch_numbers(directory: Path) -> list[int]:
    """The ids of the batches in one of Spark's logs, in no order; none without a log."""
    if not directory.is_dir():
        return []
    return [int(p.name) for p in directory.iterdir() if p.name.isdigit()]


def make_durable(checkpoint: Path, batch_id: int) -> None:
    """Have the extent of a planned batch outlast a power failure."""
    log = checkpoint / "offsets"
    for path in (log / str(batch_id), log / f".{batch_id}.crc"):
        if path.exists():
            sync(path)
    sync(log)


def require_newest(checkpoint: Path, outputs: Mapping[str, int]) -> None:
    """Raise InputError if an output has batches that Spark's log lacks; `outputs` are names with the newest.

    Others would run under their numbers, and be taken for those. A fragment publishes one more at its end
    than Spark has numbered.
    """
    newest = max(batch_numbers(checkpoint / "offsets"), default=NO_BATCH)
    for name, last in outputs.items():
        if last > newest + 1:
            raise InputError(
                "Spark's checkpoint of a fragment is older than what its outputs have",
                where=str(checkpoint),
                expected=f"batches up to {last}, which {name} has",
                got=f"batches up to {newest}" if newest >= 0 else "no batch",
                remedy="put the whole state directory back as it was, start from a savepoint, or start over "
                "with --fresh",
            )


def clear_unfinished(checkpoint: Path) -> None:
    """Remove files that a crash kept Spark from finishing; no query may run.

    Without a batch, Spark takes any file in its logs for another query's, and refuses to start.
    """
    for log in ("offsets", "commits"):
        for unfinished in (checkpoint / log).glob(".*.tmp*"):
            unfinished.unlink()


def committed(checkpoint: Path) -> int:
    """The newest batch that Spark has committed, `NO_BATCH` if there is none."""
    return max(batch_numbers(checkpoint / "commits"), default=NO_BATCH)


def next_watermark_ms(checkpoint: Path) -> int:
    """The watermark after the newest batch that Spark has committed; 0 for none."""
    newest = committed(checkpoint)
    if newest < 0:
        return 0
    _, metadata = (checkpoint / "commits" / str(newest)).read_text().splitlines()[:2]
    return int(json.loads(metadata).get("nextBatchWatermarkMs", 0))


def entries_after(checkpoint: Path, batch_id: int, inputs: tuple[str | None, ...]) -> dict[str, int]:
    """The next entries after a batch, by the id of the channel or stored source; none before the first.

    `inputs` are the ids in the order of Spark's offsets. Raises FileNotFoundError for a batch that Spark has
    deleted.
    """
    if batch_id < 0:
        return {}
    _, offsets = read_offsets(checkpoint / "offsets" / str(batch_id))
    found = {}
    for id, offset in zip(inputs, offsets, strict=False):
        position = json.loads(offset) if offset and id is not None else None
        if id is not None and isinstance(position, dict) and "entry" in position:
            found[id] = int(position["entry"])
    return found


def needed_input(
    checkpoint: Path, inputs: tuple[str | None, ...], outputs: Iterable[ChannelStore]
) -> dict[str, int]:
    """The first entry, by input, that is needed to repair what a fragment's channels still hold.

    For batches that Spark has deleted nothing is needed: they cannot be repaired. If the oldest entry of a
    channel cannot be read, everything is needed: its reader will have it repaired.
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
