"""Pauses the fragments of a change at an event time, or with former messages, until it is recorded.

Problem: the first is exact only if no batch of the version before begins once the time is compared with the
messages that were processed, the second if none begins once all former messages are read. The fragments run
in several executors, whose reports arrive late, and any executor may be replaced meanwhile.

Design: the pause is a file (`runtime.handover_pause`), which attempts read, and which only the newest
application master writes. The attempts that run when it is written report that they *stand* (no batch runs
or begins), with how far their messages have come; the time is compared with the latest of these. If the
change has former messages, an attempt stands once it has read them up to its last batch. An attempt
that begins during the pause waits for its end and never reports that it stands, so a report stays true
whatever happens to its attempt.

| stage | event | next stage |
|---|---|---|
| none | `begin` | pausing |
| pausing | the file is written | waiting |
| waiting | all attempts stand, and the time is valid: `ready` | ready |
| waiting | an attempt was replaced, or has ended | ending |
| waiting | the time is not valid, or two minutes have passed without former messages | ending |
| ready | `end`, as the change was not recorded | ending |
| ready | `recorded` | none |
| ending | the file is removed: `refused` | none |

What if we die here: the next application master removes the file.

Invariants:

1. A change is ready only while all attempts that were asked still run, and stand for it.
2. Once a pause was written it is removed, or its version is recorded.

Called by `change_requests`, `history_progress` and `change_compiler`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from drivetrain.cluster.app_master.blocking_work import in_thread, noted_and_repeated
from drivetrain.cluster.messages.changing import VersionReport
from drivetrain.core.change.handover_places import chosen_time
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.errors import DrivetrainError, UnavailableError

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.cluster.app_master.stream.running_job import RunningJob
    from drivetrain.cluster.app_master.stream.stored_versions import CompiledChange, StoredVersions
    from drivetrain.core.job.job import Job

_MOST_PAUSE_MS: Final = 120_000
"""How long the affected fragments may take to end their batches."""
_AGAIN_MS: Final = 1_000
_TIMER: Final = "end of a pause"


@dataclass
class _Pause:
    compiled: CompiledChange
    attempts: dict[str, int]
    since_ms: int
    ready: Callable[[CompiledChange], None]
    refused: Callable[[Exception], None]
    is_waiting: bool = False


class PausedChange:
    """The pause of the fragments of `owner`, whose job is `running`, if there is one; `stored` writes it."""

    def __init__(self, owner: ApplicationMaster, running: RunningJob, stored: StoredVersions) -> None:
        self._owner: Final = owner
        self._running: Final = running
        self._stored: Final = stored
        self._pause: _Pause | None = None
        self._apply: dict[str, int | None] = {}

    @property
    def is_under_way(self) -> bool:
        """Whether there is a pause."""
        return self._pause is not None

    def begin(
        self,
        compiled: CompiledChange,
        ready: Callable[[CompiledChange], None],
        refused: Callable[[Exception], None],
    ) -> None:
        """Pause the fragments of a change; `ready` gets it with its time, or `refused` gets the reason."""
        attempts = attempts_of(self._running.job, compiled.pausing)
        now_ms = self._owner.setup.clock_ms()
        self._pause, self._apply = _Pause(compiled, attempts, now_ms, ready, refused), {}
        error = moved(self._running.job, attempts)
        if error is not None:
            self._pause = None
            refused(error)
            return
        in_thread(self._owner, lambda: self._stored.pause(compiled), self._written, self.end)

    def _written(self, _: None) -> None:
        if self._pause is not None:
            self._pause.is_waiting = True
            self.look()

    def seen(self, seen: VersionReport) -> None:
        """The report of a fragment's current attempt."""
        pause = self._pause
        if pause is None or seen.stands != pause.compiled.id:
            return
        if pause.attempts.get(seen.fragment) == seen.attempt:
            self._apply[seen.fragment] = seen.newest_ms

    def look(self) -> None:
        """Ask attempts that do not stand yet; continue when all do, or end the pause."""
        pause = self._pause
        if pause is None or not pause.is_waiting:
            return
        error = moved(self._running.job, pause.attempts) or self._too_long(pause)
        missing = pause.attempts.keys() - self._apply.keys()
        if error is None and not missing:
            newest_ms = max((ms for ms in self._apply.values() if ms is not None), default=None)
            self._choose(pause, newest_ms)
        elif error is not None:
            self.end(error)
        else:
            self._running.have_look(missing)

    def _choose(self, pause: _Pause, newest_ms: int | None) -> None:
        compiled = pause.compiled
        if compiled.at is None:
            pause.is_waiting = False
            pause.ready(compiled)
            return
        try:
            at_ms = chosen_time(compiled.at, newest_ms, compiled.sizes)
        except DrivetrainError as error:
            self.end(error)
            return
        pause.is_waiting = False
        pause.ready(replace(compiled, at_ms=at_ms))

    def _too_long(self, pause: _Pause) -> DrivetrainError | None:
        if pause.compiled.at is None or self._owner.setup.clock_ms() - pause.since_ms <= _MOST_PAUSE_MS:
            return None  # former messages were read for long: that is not given up for a long batch
        return UnavailableError(
            "the fragments that change did not end their batches, so that both versions could begin",
            expected=f"within {_MOST_PAUSE_MS // 1000} s",
            remedy="nothing has changed; try again when batches are shorter, or use --at now",
        )

    def recorded(self) -> None:
        """The version of the change is recorded, which ends its pause."""
        self._pause = None

    def end(self, error: Exception) -> None:
        """The change is refused: let the fragments continue, then report that."""
        pause = self._pause
        if pause is not None:
            pause.is_waiting = False
            again = noted_and_repeated(self._owner, _TIMER, lambda: self.end(error), _AGAIN_MS)
            in_thread(self._owner, self._stored.end_pause, lambda _: self._ended(error), again)

    def _ended(self, error: Exception) -> None:
        pause, self._pause = self._pause, None
        if pause is not None:
            pause.refused(error)


def attempts_of(job: Job, fragments: Iterable[str]) -> dict[str, int]:
    """The current attempts of these fragments."""
    executions = {fragment: job.execution(fragment) for fragment in fragments}
    return {id: -1 if execution is None else execution.attempt for id, execution in executions.items()}


def moved(job: Job, attempts: Mapping[str, int]) -> DrivetrainError | None:
    """Why a change cannot wait for these attempts: one was replaced or has ended; None if all run."""
    for fragment, attempt in sorted(attempts.items()):
        execution = job.execution(fragment)
        where = f"fragment {fragment}"
        if execution is not None and execution.state is ExecutionState.FINISHED:
            return UnavailableError(
                "a fragment that the change concerns has ended, so no message follows",
                where=where,
                remedy="use --at now, without --history",
            )
        is_same = execution is not None and execution.attempt == attempt
        if execution is None or not is_same or execution.state is not ExecutionState.RUNNING:
            return starting(fragment)
    return None


def starting(fragment: str) -> UnavailableError:
    """The error of a change that needs a fragment which does not run at the moment."""
    return UnavailableError(
        "a fragment that the change concerns is starting",
        where=f"fragment {fragment}",
        remedy="try again in a moment",
    )
