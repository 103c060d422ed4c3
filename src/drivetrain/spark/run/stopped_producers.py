"""Notices other applications that do not run while this one reads their streams.

Problem: an application that reads another one waits for it. If the other one was stopped, or has failed,
nothing else shows why no messages come.

Design: the run looks every few seconds whether processes run the other application (`outside_producer`). Each
change is a notice, and until the other application runs again, the status of this run shows what it
waits for. A source that was read to its end waits for nothing. What if we die here: the next run looks again.

Called by `embedded_loop`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain.errors import InputError
from drivetrain.runtime import outside_producer
from drivetrain.runtime.subscription_note import SubscriptionNote, read_note
from drivetrain.spark.run.subscribing import outside_sources

if TYPE_CHECKING:
    from drivetrain.spark.run.execution import Execution
    from drivetrain.spark.run.fragment_driver import FragmentDriver

LOOK_S: Final = 2.0
"""How often a run checks."""


class StoppedProducers:
    """The applications that `execution` reads and that do not run; `drivers` drive its fragments, by id."""

    def __init__(
        self,
        execution: Execution,
        drivers: Mapping[str, FragmentDriver],
        runs: Callable[[Path], bool] = outside_producer.runs,
    ) -> None:
        self.notices: Final[deque[str]] = deque()
        """Notices for the user, oldest first; the code that shows a notice removes it."""
        self._execution: Final = execution
        self._drivers: Final = drivers
        self._runs: Final = runs
        self._looked_s = 0.0
        self._stopped: dict[str, str] = {}

    @property
    def waiting_for(self) -> str | None:
        """What the run waits for, as text after "waiting for"; None for nothing. From any thread."""
        names = sorted(set(self._stopped.values()))
        if not names:
            return None
        return (
            f"application {names[0]}, which does not run"
            if len(names) == 1
            else (f"applications {', '.join(names)}, which do not run")
        )

    def look(self) -> None:
        """Look whether the other applications run, every few seconds."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        before, now, named = self._stopped, dict[str, str](), outside_sources(self._execution.plan.graph)
        for id, note in self._notes().items():
            if not self._runs(Path(note.home)):
                now[id] = named[id].application
        for id in now.keys() - before.keys():
            self.notices.append(f"{id} waits for application {now[id]}, which does not run: start it")
        for id in before.keys() - now.keys():
            self.notices.append(f"{id} does not wait for application {before[id]} any more")
        self._stopped = now

    def _notes(self) -> dict[str, SubscriptionNote]:
        """The subscriptions of sources that have more to read, by source."""
        found: dict[str, SubscriptionNote] = {}
        for id in outside_sources(self._execution.plan.graph):
            try:
                note = read_note(self._execution.rundir.source(id))
            except InputError:
                continue  # the source itself reports a note that is damaged
            if note is not None and not self._is_read(id):
                found[id] = note
        return found

    def _is_read(self, id: str) -> bool:
        for driver in list(self._drivers.values()):
            if id in driver.query.trunk.sources:
                return driver.is_finished or driver.query.inputs.has_read_all(id)
        return True
