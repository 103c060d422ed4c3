"""What a channel adds to messages on disk by addressing and accounting, from real files."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa

from drivetrain.runtime.channel.segments import write_segment
from drivetrain.runtime.channel.store import ChannelStore

SCHEMA = pa.schema([("message", pa.string()), ("__ts", pa.timestamp("us", tz="UTC"))])
BATCHES, PER_BATCH, MESSAGE_BYTES = 5, 20_000, 100


def batch(draw: random.Random, first: int) -> pa.RecordBatch:
    """Messages of a hundred bytes, one a millisecond, in no order."""
    texts = [draw.randbytes(MESSAGE_BYTES // 2).hex() for _ in range(PER_BATCH)]
    stamps = [(first + n) * 1000 for n in range(PER_BATCH)]
    draw.shuffle(stamps)
    return pa.record_batch([pa.array(texts), pa.array(stamps, SCHEMA.field(1).type)], schema=SCHEMA)


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def test_addressing_and_accounting_take_less_than_a_byte_of_a_hundred_byte_message(tmp_path: Path) -> None:
    draw = random.Random(1)
    store = ChannelStore(str(tmp_path / "channel"), fragment="producer")
    for number in range(BATCHES):
        store.append(number, [write_segment(store.files, "s", [batch(draw, number * PER_BATCH)])], number)
        store.record_position("subscriber", number)
        store.record_need("subscriber", number)
    log = size(tmp_path / "channel") - size(tmp_path / "channel" / "segments")
    frame = write_segment(store.files, "frame", [batch(draw, 0).slice(0, 1)]).bytes  # all but the messages
    per_message = (log + BATCHES * frame) / (BATCHES * PER_BATCH)
    assert 0 < per_message < 0.25
    # Small batches pay more: an entry and a frame for each.
    assert (log / BATCHES + frame) / 2_000 < 1
