"""Repairs of channels that another application reads: the reader asks, the producer's side repairs.

Problem: a subscriber repairs a channel from its producer's checkpoint, with the code that wrote it. Another
application has neither.

    <channel>/repair-wanted     the first entry that the reader has not taken: written by the reader, deleted
                                when everything from there on is whole
    <channel>/repair-refused    why it cannot be repaired

Design: the reader finds what is damaged, writes what it wants, and waits. The process that runs the producer
looks for such files, and repairs in a thread of its own while the producer's query runs on.

What if we die here: the file stays, and whoever runs the producer next repairs.

Invariants:

1. A reader continues only when every entry from its position on can be read.

Called by `repair` (the reader) and by `embedded_loop` (the producer).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain.api.application_stream import ApplicationStream
from drivetrain.core.channel.channel_log import TrimmedError
from drivetrain.core.plan.plan import Plan
from drivetrain.durable import write_whole
from drivetrain.runtime.channel.segments import MessageLossError, verified
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.subscription_note import read_note
from drivetrain.spark.repair.rerun_batch import LostForGoodError
from drivetrain.spark.repair.steps import Steps, wait_done

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory
    from drivetrain.spark.repair.recovery import Recovery
    from drivetrain.spark.run.fragment_driver import FragmentDriver

_WANTED: Final = "repair-wanted"
_REFUSED: Final = "repair-refused"
_LOOK_S: Final = 1.0


def outside_channel(plan: Plan, rundir: RunDirectory, id: str) -> Path | None:
    """The channel of another application that an input reads; None for other inputs."""
    node = plan.graph.nodes.get(id)
    if node is None or not isinstance(node.operation.stream_source, ApplicationStream):
        return None
    note = read_note(rundir.source(id))
    return None if note is None else Path(note.channel)


def repaired_by_producer(id: str, channel: Path, first: int, tell: Callable[[str], None]) -> Steps[int]:
    """Have the other application repair its channel from entry `first` on; how many entries were damaged.

    Raises LostForGoodError when it cannot.
    """
    damaged = _damaged(channel, first)
    if not damaged:
        return 0
    wanted, refused = channel / _WANTED, channel / _REFUSED
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


class OutsideRepairs:
    """Repairs what readers ask for of the channels that `drivers` write, one channel at a time."""

    def __init__(self, drivers: Mapping[str, FragmentDriver], recovery: Recovery) -> None:
        self._drivers: Final = drivers
        self._recovery: Final = recovery
        self._looked_s = 0.0
        self._underway: threading.Thread | None = None
        self._given_up: Final = threading.Event()

    def look(self) -> None:
        """Look for requests, every second, and begin a repair."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S or (self._underway and self._underway.is_alive()):
            return
        self._looked_s = now_s
        for driver in self._drivers.values():
            query = driver.query
            for id in query.flow.outside.ids():
                place = Path(query.branches.stores[id].uri)
                if (place / _WANTED).exists():
                    self._begin(driver.fragment, id, place)
                    return

    def close(self) -> None:
        """Give up a repair; the next run does it."""
        self._given_up.set()
        if self._underway is not None:
            self._underway.join()

    def _begin(self, fragment: str, id: str, place: Path) -> None:
        def repair() -> None:
            try:
                first = int((place / _WANTED).read_text())
                steps = self._recovery.mend_outside(fragment, id, first)
                wait_done(steps, self._given_up.is_set, f"fragment {fragment}")
            except Exception as error:  # noqa: BLE001 - told to the reader, which must not wait for ever
                if self._given_up.is_set():
                    return
                with suppress(OSError):
                    write_whole(place / _REFUSED, str(error).encode())
            with suppress(OSError):
                (place / _WANTED).unlink(missing_ok=True)

        self._underway = threading.Thread(target=repair, name=f"repairing-{id}", daemon=True)
        self._underway.start()
