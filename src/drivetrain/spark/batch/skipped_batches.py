"""The batches that an at-most-once application has left out.

Problem: after a crash it is unknown how far the batch in flight had come. At most once means that it must not
run again; but a batch that had not written to any output yet, because the application was stopped or failed
before its first output, must not be lost because of this rule.

Design: a small file in the fragment's directory. It names the batch that is known not to have begun. It is
written when a batch ends with an error before its first output, and withdrawn before that batch runs
again. All other batches that Spark runs again are left out: they update the state, but their results go to no
output and are counted here.

What if we die here: without the record, a batch that had not begun is left out, which is allowed; a batch
that is counted and then runs again, because Spark had not committed it, is counted once.

Invariants:

1. A batch that may have written anything to an output never runs for outputs again.
2. A batch that is left out is counted once.

Called by `micro_batch_query`; batches are left out only in applications that run at most once.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from drivetrain.core.channel.channel_log import NO_BATCH
from drivetrain.runtime.channel.files import ChannelFiles

FILE = "left-out.json"


class SkippedBatches(msgspec.Struct, frozen=True):
    """Batches and messages that were left out since the application began, the last such batch, and the batch
    that is known not to have begun."""

    batches: int = 0
    messages: int = 0
    last: int = NO_BATCH
    not_begun: int = NO_BATCH


def skipped_batches(directory: Path) -> SkippedBatches:
    """The record in the directory of a fragment."""
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=SkippedBatches)
    except FileNotFoundError:
        return SkippedBatches()


def note_not_begun(directory: Path, batch_id: int) -> None:
    """Record that batch `batch_id` has not written to any output."""
    _write(directory, msgspec.structs.replace(skipped_batches(directory), not_begun=batch_id))


def note_skipped(directory: Path, batch_id: int, messages: int) -> SkippedBatches:
    """Record that a batch of so many messages was left out."""
    known = skipped_batches(directory)
    if batch_id == known.last:
        return known
    known = SkippedBatches(known.batches + 1, known.messages + messages, batch_id)
    _write(directory, known)
    return known


def _write(directory: Path, known: SkippedBatches) -> None:
    ChannelFiles(str(directory)).replace(FILE, msgspec.json.encode(known), kept=True)
