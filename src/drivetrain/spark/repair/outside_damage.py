"""Requests the repair of a damaged channel from the other application that writes it.

Problem: a subscriber repairs a channel from its producer's checkpoint, with the code that wrote it. Another
application has neither.

    <channel>/repair-wanted     the first entry that the reader has not taken: written by the reader, deleted
                                when everything from there on is whole
    <channel>/repair-refused    why it cannot be repaired

Design: the reader finds the damage, writes its request, and waits.

Invariants:

1. A reader continues only when every entry from its position on can be read.

Called by `repair`; `spark.run.outside_repairs` answers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain.api.connectors.application_stream import ApplicationStream
from drivetrain.core.channel.channel_log import TrimmedError
from drivetrain.core.plan.plan import Plan
from drivetrain.durable import write_whole
from drivetrain.runtime.channel.segments import MessageLossError, verified
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.subscription_note import read_note
from drivetrain.spark.repair.rerun_batch import LostForGoodError
from drivetrain.spark.repair.steps import Steps

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory

WANTED: Final = "repair-wanted"
REFUSED: Final = "repair-refused"


def outside_channel(plan: Plan, rundir: RunDirectory, id: str) -> Path | None:
    """The channel of another application that an input reads; None for other inputs."""
    node = plan.graph.nodes.get(id)
    if node is None or not isinstance(node.operation.stream_source, ApplicationStream):
        return None
    note = read_note(rundir.source(id))
    return None if note is None else Path(note.channel)


def repaired_by_producer(id: str, channel: Path, first: int, tell: Callable[[str], None]) -> Steps[int]:
    """Have the other application repair its channel from entry `first` on; returns the number of damaged
    entries.

    Raises LostForGoodError when it cannot.
    """
    damaged = _damaged(channel, first)
    if not damaged:
        return 0
    wanted, refused = channel / WANTED, channel / REFUSED
    refused.unlink(missing_ok=True)
    write_whole(wanted, str(first).encode())
    tell(f"{id} waits until the other application has repaired entries {', '.join(map(str, damaged))}")
    while wanted.exists():
        yield
    if refused.exists() or _damaged(channel, first):
        raise LostForGoodError(
            "messages of another application's stream are lost, and it cannot repair them",
            where=f"{id} ({channel})",
            got=refused.read_text() if refused.exists() else None,
            remedy="restore the files from a backup, or start this application over with --fresh",
        )
    return len(damaged)


def _damaged(channel: Path, first: int) -> list[int]:
    store = ChannelStore(str(channel))
    numbers = store.numbers()
    found = []
    for number in range(first, max(numbers, default=-1) + 1):
        try:
            for segment in store.read_entry(number).segments:
                verified(store.files, segment)
        except (MessageLossError, TrimmedError):
            found.append(number)
    return found
