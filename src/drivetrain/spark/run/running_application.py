"""An application that runs embedded while the program goes on.

Problem: `run` returns at the end; an application over a stream without an end has none. A program that embeds
one wants to wait for its clock ("all of March is counted"), look at it, and stop it.

Design: `run` in a thread, behind a handle. The handle listens in front of the program's own listener, if
there is one, to hand on the wish to stop.

Invariants:

1. `wait` gives the run's result, or raises the run's error, however often it is called.
2. A wait for the clock ends when the run does: nobody waits for what cannot come.

Made by `drivetrain.start`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias

from drivetrain.api.durations import DEFAULT_TIMEOUT, milliseconds
from drivetrain.api.moments import moment_ms
from drivetrain.core.job.run_progress import ProgressEvent, QuietListener, RunListener, RunResult
from drivetrain.errors import UnavailableError
from drivetrain.spark.run.run_clock import RunClock, clock_is_behind

if TYPE_CHECKING:
    import os
    from datetime import datetime
    from pathlib import Path

    from drivetrain.spark.state.state_query import States

Run: TypeAlias = Callable[[RunListener, Callable[[RunClock], None]], RunResult]


class RunningApplication:
    """The handle of a run in a background thread; as a context manager it stops the run at the end.

    >>> def saved_after_an_hour(running: RunningApplication) -> RunResult:
    ...     running.wait_clock("2024-01-01T01:00", timeout="1 min")
    ...     print(running.clock_ms, running.state("counts").get("word"))
    ...     running.savepoint("saved/", timeout="5 min")
    ...     if running.is_running:
    ...         running.stop()
    ...     return running.wait("1 min")
    """

    def __init__(
        self,
        run: Run,
        listener: RunListener | None,
        states: Callable[[str], States],
        save: Callable[[str | os.PathLike[str] | None, str], Path],
    ) -> None:
        self._save: Final = save
        self._states: Final = states
        self._listener: Final = _Listener(listener or QuietListener())
        self._run: Final = run
        self._clock: RunClock | None = None
        self._clock_is_there: Final = threading.Event()
        self._result: RunResult | None = None
        self._error: BaseException | None = None
        self._thread: Final = threading.Thread(target=self._until_the_end, name="drivetrain-run", daemon=True)
        self._thread.start()

    def __enter__(self) -> RunningApplication:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether the run has not ended yet."""
        return self._thread.is_alive()

    @property
    def clock_ms(self) -> int | None:
        """The application's event-time clock in ms since the epoch; None: it has none yet."""
        return None if self._clock is None else self._clock.clock_ms

    def wait_clock(self, moment: str | int | datetime, timeout: str = DEFAULT_TIMEOUT) -> int:
        """Wait until everything before `moment` has been processed; returns the clock, in ms.

        `moment` is ISO 8601 (UTC unless it has a zone), a datetime, or ms since the epoch. Raises
        UnavailableError when the clock has not reached it after `timeout` ("5 min"), or the run has stopped
        before, and the run's own error if it failed.
        """
        wanted_ms, timeout_ms = moment_ms(moment, "moment"), milliseconds(timeout, "timeout")
        if not self._clock_is_there.wait(timeout_ms / 1000) or self._clock is None:
            self._raise_error()
            raise clock_is_behind(wanted_ms, None, timeout_ms)
        try:
            return self._clock.wait_clock(wanted_ms, timeout_ms)
        except UnavailableError:
            if self._clock.is_over:
                self._thread.join()  # why it ended is known a moment later
            self._raise_error()
            raise

    def state(self, processor: str) -> States:
        """Query the states of a processor while it runs; raises the errors of `drivetrain.state`."""
        return self._states(processor)

    def savepoint(self, place: str | os.PathLike[str] | None = None, timeout: str = "1 min") -> Path:
        """Write a savepoint of the application while it runs; see `drivetrain.savepoint`."""
        self._clock_is_there.wait(milliseconds(timeout, "timeout") / 1000)
        self._raise_error()
        return self._save(place, timeout)

    def stop(self) -> None:
        """Ask the run to finish its batches and to end; returns at once. Use `wait` to wait for its end."""
        self._listener.is_asked_to_stop = True

    def wait(self, timeout: str | None = None) -> RunResult:
        """Wait until the run has ended, at most for `timeout` if given; returns its result.

        Raises the run's error, UnavailableError when it has not ended in time.
        """
        self._thread.join(None if timeout is None else milliseconds(timeout, "timeout") / 1000)
        self._raise_error()
        if self._result is None:
            raise UnavailableError(
                "the run has not ended", expected=f"within {timeout}", remedy="wait longer, or stop it"
            )
        return self._result

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _until_the_end(self) -> None:
        try:
            self._result = self._run(self._listener, self._clock_made)
        except BaseException as error:  # noqa: BLE001 - raised by `wait`
            self._error = error
        finally:
            self._clock_is_there.set()

    def _clock_made(self, clock: RunClock) -> None:
        self._clock = clock
        self._clock_is_there.set()


class _Listener:
    def __init__(self, listener: RunListener) -> None:
        self._listener: Final = listener
        self.is_asked_to_stop = False

    def on_event(self, event: ProgressEvent) -> None:
        self._listener.on_event(event)

    def stop_requested(self) -> bool:
        return self.is_asked_to_stop or self._listener.stop_requested()
