"""Repairs of channels that another application reads, in the process that writes them.

Design: `outside_damage` has the files by which a reader requests a repair. The process that runs the producer
looks for them, in a cluster the attempt of the fragment that writes the channel, and makes the repair in a
separate thread while the producer's query continues. What if we die here: the request stays, and the next
process that runs the producer makes the repair.

Called by `embedded_loop` and `fragment_attempt`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain.durable import write_whole
from drivetrain.spark.repair.outside_damage import REFUSED, WANTED
from drivetrain.spark.repair.steps import wait_done

if TYPE_CHECKING:
    from drivetrain.spark.run.fragment_driver import FragmentDriver
    from drivetrain.spark.run.recovery import Recovery

_LOOK_S: Final = 1.0


class OutsideRepairs:
    """Makes the repairs that readers request in channels that `drivers` write, one channel at a time."""

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
                if (place / WANTED).exists():
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
                first = int((place / WANTED).read_text())
                steps = self._recovery.mend_outside(fragment, id, first)
                wait_done(steps, self._given_up.is_set, f"fragment {fragment}")
            except Exception as error:  # noqa: BLE001 - reported to the reader, which must not wait for ever
                if self._given_up.is_set():
                    return
                with suppress(OSError):
                    write_whole(place / REFUSED, str(error).encode())
            with suppress(OSError):
                (place / WANTED).unlink(missing_ok=True)

        self._underway = threading.Thread(target=repair, name=f"repairing-{id}", daemon=True)
        self._underway.start()
