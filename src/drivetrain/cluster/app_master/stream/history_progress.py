"""The former messages that a change waits for, as the application master sees it.

Problem: executors read the former messages, for hours perhaps; any of them may be replaced meanwhile, and the
client that has asked for the change has gone.

Design: a file has the attempts of the fragments concerned read (`runtime.wanted_history`). They report their
progress again and again. When all of them are near the newest messages, `change_requests` has their fragments
pause (`paused_change`), and each stands once its channels are complete.

| stage | event | next stage |
|---|---|---|
| none | `begin` | beginning |
| beginning | the file is written: `begun` | reading |
| reading | all attempts are near: `near` | near |
| reading, near | an attempt was replaced, has ended or cannot read: `stop` | ending |
| reading, near | the change is cancelled: `stop`; or cannot be recorded: `end` | ending |
| near | `recorded` | none |
| ending | the file is removed: `refused` | none |

What if we die here: the next application master removes the file.

Invariants:

1. The attempts that are near are those that have begun to read.
2. Once a file was written it is removed, or its version is recorded.

Called by `change_requests`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.cluster.app_master.blocking_work import in_thread, noted_and_repeated
from drivetrain.cluster.app_master.stream.change_compiler import RefusedChangeError
from drivetrain.cluster.app_master.stream.paused_change import attempts_of, moved
from drivetrain.cluster.messages.changing import HistoryReading, VersionReport
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.core.change.live_change import Stage
from drivetrain.core.change.message_history import HistoryState

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.cluster.app_master.stream.running_job import RunningJob
    from drivetrain.cluster.app_master.stream.stored_versions import (
        CompiledChange,
        CompiledHistory,
        StoredVersions,
    )
    from drivetrain.core.change.change_state import ChangeState

_AGAIN_MS: Final = 1_000
_TIMER: Final = "end of a history"
_NOTICE_MS: Final = 60_000
"""How often a notice shows the progress."""


@dataclass
class _Reading:
    compiled: CompiledChange
    history: CompiledHistory
    attempts: dict[str, int]
    begun: Callable[[], None]
    near: Callable[[CompiledChange], None]
    refused: Callable[[CompiledChange, Exception], None]
    progress: dict[str, HistoryReading] = field(default_factory=dict)
    has_begun: bool = False  # the file is written
    is_near: bool = False
    is_ending: bool = False
    noticed_ms: int = 0


class HistoryProgress:
    """The former messages that attempts of the job `running` of `owner` read, if a change needs some.

    `stop` is called with the reason when they cannot be read to the end: it has to call `end`.
    """

    def __init__(
        self,
        owner: ApplicationMaster,
        running: RunningJob,
        stored: StoredVersions,
        stop: Callable[[Exception], None],
    ) -> None:
        self._owner: Final = owner
        self._running: Final = running
        self._stored: Final = stored
        self._stop: Final = stop
        self._reading: _Reading | None = None
        self._last: tuple[int, HistoryState] | None = None  # of the last change that had a history

    @property
    def is_under_way(self) -> bool:
        """Whether a change waits for former messages, or has yet to be recorded or refused after that."""
        return self._reading is not None

    def begin(
        self,
        compiled: CompiledChange,
        begun: Callable[[], None],
        near: Callable[[CompiledChange], None],
        refused: Callable[[CompiledChange, Exception], None],
    ) -> None:
        """Have the former messages of a change read.

        `begun` is called once they are being read, `near` gets the change when its fragments have to pause,
        and `refused` gets it with the reason when they cannot be read.
        """
        history = compiled.history
        assert history is not None
        attempts = attempts_of(self._running.job, history.channels)
        self._reading = _Reading(compiled, history, attempts, begun, near, refused)
        self._last = compiled.change.number, HistoryState(history.from_ms, history.fragments)
        error = moved(self._running.job, attempts)
        if error is None:
            in_thread(self._owner, lambda: self._stored.want_history(compiled), self._written, self.end)
        else:
            self.end(error)

    def _written(self, _: None) -> None:
        reading = self._reading
        if reading is not None and not reading.is_ending:
            reading.has_begun, reading.noticed_ms = True, self._owner.setup.clock_ms()
            reading.begun()
            self.look()

    def seen(self, seen: VersionReport) -> None:
        """The report of a fragment's current attempt."""
        reading, progress = self._reading, seen.history
        if progress is None:
            return
        if reading is None or reading.is_ending or progress.id != reading.compiled.id:
            self._running.have_look([seen.fragment])  # it has to stop reading
        elif reading.attempts.get(seen.fragment) == seen.attempt:
            reading.progress[seen.fragment] = progress

    def look(self) -> None:
        """Ask attempts that have not begun to read; continue when all are near, or end the reading."""
        reading = self._reading
        if reading is None or not reading.has_begun or reading.is_ending:
            return
        failed = [p.failed for p in reading.progress.values() if p.failed is not None]
        error = RefusedChangeError(failed[0]) if failed else moved(self._running.job, reading.attempts)
        missing = reading.attempts.keys() - reading.progress.keys()
        if error is not None:
            self.stop(error)
        elif missing:
            self._running.have_look(missing)
        elif not reading.is_near and all(p.is_near for p in reading.progress.values()):
            reading.is_near = True
            reading.near(reading.compiled)
        elif self._owner.setup.clock_ms() - reading.noticed_ms > _NOTICE_MS and self.state is not None:
            reading.noticed_ms = self._owner.setup.clock_ms()
            self._owner.note(ErrorView("notice", self.state.in_words))

    def shown(self, state: ChangeState) -> ChangeState:
        """The state of a change, with the progress of reading."""
        history, reading = self.state, self._reading
        if self._last is None or history is None:
            return state
        if reading is None:
            return msgspec.structs.replace(state, history=history) if state.number == self._last[0] else state
        change = reading.compiled.change
        if state.number == change.number and state.outcome is None:  # else an earlier one had the number
            return msgspec.structs.replace(state, history=history)  # it is being recorded
        return msgspec.structs.replace(
            state,
            stage=Stage.PROPOSED,
            number=change.number,
            before=change.before,
            awaited=(),
            outcome=None,
            fragment=None,
            why=None,
            history=history,
        )

    @property
    def state(self) -> HistoryState | None:
        """How far the history of the current or last change has been read; None if there was none."""
        if self._last is None:
            return None
        if self._reading is None:
            return self._last[1]
        progress = self._reading.progress.values()
        return self._last[1].with_progress([(p.rows, p.at_ms, p.until_ms) for p in progress])

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices about former messages that were left out."""
        progress = () if self._reading is None else self._reading.progress.values()
        return tuple(notice for p in progress for notice in p.lost)

    def recorded(self) -> None:
        """The version of the change is recorded."""
        if self._reading is not None and self._last is not None and self.state is not None:
            self._last = self._last[0], msgspec.structs.replace(self.state, is_over=True)
            self._reading = None

    def is_for(self, number: int) -> bool:
        """Whether former messages are being read for version `number`."""
        reading = self._reading
        return reading is not None and not reading.is_ending and reading.compiled.change.number == number

    def stop(self, error: Exception) -> None:
        """The former messages are not wanted any more, or cannot be read."""
        if self._reading is not None and not self._reading.is_ending:
            self._reading.is_ending = True
            self._stop(error)

    def end(self, error: Exception) -> None:
        """The change is refused: have attempts stop reading, then report that."""
        reading = self._reading
        if reading is not None:
            reading.is_ending = True
            again = noted_and_repeated(self._owner, _TIMER, lambda: self.end(error), _AGAIN_MS)
            forget = partial(self._stored.forget_history, reading.compiled.id)
            in_thread(self._owner, forget, lambda _: self._over(reading, error), again)

    def _over(self, reading: _Reading, error: Exception) -> None:
        if self._reading is not reading or self._last is None or self.state is None:
            return
        self._last = self._last[0], msgspec.structs.replace(self.state, is_over=True)
        self._reading = None
        self._running.have_look(reading.attempts)
        reading.refused(reading.compiled, error)
