"""An application that runs embedded while the program continues.

Problem: `run` returns at the end; an application over an unbounded stream has none. A program that embeds
one wants to wait for its clock ("all of March is counted"), read its states, and stop it.

Design: `run` in a thread, with a handle. The handle wraps the program's own listener, if there is one, to
pass on a request to stop.

Invariants:

1. `wait` returns the run's result, or raises the run's error, however often it is called.
2. A wait for the clock ends when the run does.

Made by `drivetrain.start`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias

from drivetrain.api.durations import DEFAULT_TIMEOUT, milliseconds
from drivetrain.api.graph_edits import Attach, attached, removed, replaced
from drivetrain.api.moments import moment_ms
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.handover import time_given
from drivetrain.core.change.message_history import history_given
from drivetrain.core.change.scaling_state import PlannedScaling, ScalingState, require_scaled
from drivetrain.core.job.run_page import RunPage
from drivetrain.core.job.run_progress import ProgressEvent, QuietListener, RunListener, RunResult
from drivetrain.core.plan.configured import configured_plan
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.control_requests import wait_ended, wait_scaled
from drivetrain.runtime.planned_version import planned_version
from drivetrain.spark.prepare.code_shipping import ship
from drivetrain.spark.prepare.graph_code import code_if_possible
from drivetrain.spark.run.change_proposal import RequestedChange
from drivetrain.spark.run.configuring import configure
from drivetrain.spark.run.run_clock import RunClock, clock_is_behind

if TYPE_CHECKING:
    import os
    from datetime import datetime

    from drivetrain.api.application import Application
    from drivetrain.api.graphs.graph import Graph
    from drivetrain.core.change.change_state import ChangeState
    from drivetrain.spark.run.embedded import Running
    from drivetrain.spark.run.live_changes import LiveChanges
    from drivetrain.spark.state.state_query import States

_SHOW_S: Final = 0.5
"""How often a notebook's cell is drawn again."""

Run: TypeAlias = Callable[[RunListener, "Callable[[Running], None]"], RunResult]


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
        save: Callable[[str | os.PathLike[str] | None, str], str],
    ) -> None:
        self._save: Final = save
        self._states: Final = states
        self._listener: Final = _Listener(listener or QuietListener())
        self._run: Final = run
        self._clock: RunClock | None = None
        self._changes: LiveChanges | None = None
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
                self._thread.join()  # the reason for its end is known a moment later
            self._raise_error()
            raise

    def state(self, processor: str) -> States:
        """Query the states of a processor while it runs; raises the errors of `drivetrain.state`."""
        return self._states(processor)

    def savepoint(self, place: str | os.PathLike[str] | None = None, timeout: str = "1 min") -> str:
        """Write a savepoint of the application while it runs; see `drivetrain.savepoint`."""
        self._clock_is_there.wait(milliseconds(timeout, "timeout") / 1000)
        self._raise_error()
        return self._save(place, timeout)

    @property
    def version(self) -> int | None:
        """The number of the version that runs; None before the first batch."""
        return None if self._changes is None else self._changes.versions.in_force.record.number

    def update(
        self,
        application: Application,
        timeout: str = DEFAULT_TIMEOUT,
        *,
        at: str | int | datetime = "now",
        discard: bool = False,
        even_if_read: bool = False,
        drop_state: Iterable[str] = (),
        history: str | int | datetime | None = None,
    ) -> int:
        """Change the application while it runs, and wait until the change has ended; returns its version.

        `application` is the new graph, with the same name and settings. With `at`, a moment as for
        `wait_clock` or "next-window", it gets the messages from that time on, and the previous version gets
        the others; the change has then ended when the new version has processed a message. Raises UserError
        when it cannot change like this, or nothing changes; ChangeUnderwayError while another change is
        under way; `RolledBackError` when the new code has failed and the application went back;
        UnavailableError when the change has not ended `timeout` after its compilation; the change then
        continues. A removed fragment processes the rest of its input, except with `discard`. Streams that
        other applications read must stay as they are, except with `even_if_read`. The processors in
        `drop_state` may begin with an empty state, if theirs does not fit. With `history`, a moment, new
        fragments also get earlier messages, from that time on.

        >>> def warmer(running: RunningApplication, changed: Application) -> int:
        ...     return running.update(changed, timeout="1 min")
        """
        drops, from_ms = tuple(drop_state), history_given(history)
        options = ChangeOptions(discard, even_if_read, drops, time_given(at), from_ms)
        return self._changed(timeout, lambda changes: _propose_application(changes, application, options))

    def attach(
        self,
        attach: Attach,
        to: str,
        timeout: str = DEFAULT_TIMEOUT,
        *,
        at: str | int | datetime = "now",
        history: str | int | datetime | None = None,
    ) -> int:
        """Add what `attach(stream)` adds after processor `to`; waits and raises like `update`.

        >>> def watched(running: RunningApplication) -> int:
        ...     return running.attach(lambda sales: sales.sink(sinks.console()), to="sales")
        """
        options = ChangeOptions(at=time_given(at), history_ms=history_given(history))
        return self._edited(timeout, lambda graph: attached(graph, to, attach), options)

    def remove(
        self,
        processor: str,
        timeout: str = DEFAULT_TIMEOUT,
        *,
        at: str | int | datetime = "now",
        discard: bool = False,
        even_if_read: bool = False,
    ) -> int:
        """Remove a processor with everything that reads from it; waits and raises like `update`.

        >>> def without_average(running: RunningApplication) -> int:
        ...     return running.remove("average")
        """
        options = ChangeOptions(discard, even_if_read, at=time_given(at))
        return self._edited(timeout, lambda graph: removed(graph, processor), options)

    def replace(
        self,
        processor: str,
        replace: Attach,
        timeout: str = DEFAULT_TIMEOUT,
        *,
        at: str | int | datetime = "now",
        discard: bool = False,
        even_if_read: bool = False,
        drop_state: Iterable[str] = (),
    ) -> int:
        """Put the stream that `replace(stream)` returns in place of a processor; `stream` is what the
        processor read; waits and raises like `update`.

        >>> def dearer(running: RunningApplication) -> int:
        ...     return running.replace("cheap", lambda sales: sales.filter("price > 10"))
        """
        options = ChangeOptions(discard, even_if_read, tuple(drop_state), time_given(at))
        return self._edited(timeout, lambda graph: replaced(graph, processor, replace), options)

    def configure(
        self, values: Mapping[str, str], *, restore: Iterable[str] = (), timeout: str = DEFAULT_TIMEOUT
    ) -> dict[str, str]:
        """Change configuration keys from the next batch on: those of `drivetrain update --set`.

        `restore` names keys that get back the values with which the application was started. Returns the keys
        that have another value now, with it. Raises ConfigError for a key that cannot change while the
        application runs, and for a value that it cannot have; then nothing has changed.

        >>> def hurry(running: RunningApplication) -> None:
        ...     running.configure({"run.batch-target": "2 s"})
        """
        found = configure(self._begun(timeout).versions, values, restore)
        return {value.name: value.after for value in found}

    def scale(self, fragment: str, partitions: int, timeout: str = DEFAULT_TIMEOUT) -> ScalingState:
        """Divide the state of a fragment, or of a processor's fragment, into so many partitions; see
        `drivetrain scale`. Waits until the fragment runs again, and returns how long it took.

        Raises UserError when that is impossible, or has failed, ChangeUnderwayError during a change, and
        UnavailableError when it has not ended after `timeout`; the scaling then continues.

        >>> def wider(running: RunningApplication) -> int:
        ...     return running.scale("hourly", partitions=8).paused_ms
        """
        wait_s, changes = milliseconds(timeout, "timeout") / 1000, self._begun(timeout)
        changes.scale(fragment, partitions)
        return require_scaled(wait_scaled(self._state_of(changes), wait_s))

    def plan_scaling(self, fragment: str, partitions: int, timeout: str = DEFAULT_TIMEOUT) -> PlannedScaling:
        """What `scale` would do, with the size of the state; changes nothing.

        Raises UserError when it is impossible.

        >>> def size_to_move(running: RunningApplication) -> int:
        ...     return running.plan_scaling("hourly", partitions=8).bytes
        """
        return self._begun(timeout).planned_scaling(fragment, partitions)

    def _edited(
        self, timeout: str, edit: Callable[[Graph], Graph], options: ChangeOptions = NO_OPTIONS
    ) -> int:
        def propose(changes: LiveChanges) -> int:
            return _propose_graph(changes, edit(changes.versions.in_force.plan.graph), options)

        return self._changed(timeout, propose)

    def _changed(self, timeout: str, propose: Callable[[LiveChanges], int]) -> int:
        from drivetrain.core.change.change_state import require_done

        wait_s = milliseconds(timeout, "timeout") / 1000
        changes = self._begun(timeout)
        number = propose(changes)
        changes.wait_taken(number)
        return require_done(wait_ended(self._state_of(changes), number, wait_s))

    def _begun(self, timeout: str) -> LiveChanges:
        self._clock_is_there.wait(milliseconds(timeout, "timeout") / 1000)
        self._raise_error()
        if self._changes is None:
            raise UnavailableError("the application has not begun", remedy="try again")
        return self._changes

    def _state_of(self, changes: LiveChanges) -> Callable[[], ChangeState]:
        def state() -> ChangeState:
            if not self.is_running:
                self._raise_error()
            state = changes.state
            if not self.is_running and state.outcome is None:
                raise UnavailableError(
                    "the run has ended before the change", remedy="the next run continues with it"
                )
            return state

        return state

    def stop(self) -> None:
        """Ask the run to finish its batches and to end; returns at once. Use `wait` to wait for its end."""
        self._listener.is_asked_to_stop = True

    def wait(self, timeout: str | None = None) -> RunResult:
        """Wait until the run has ended, at most for `timeout` if given; returns its result.

        Raises the run's error, and UnavailableError when it has not ended in time.
        """
        self._thread.join(None if timeout is None else milliseconds(timeout, "timeout") / 1000)
        self._raise_error()
        if self._result is None:
            raise UnavailableError(
                "the run has not ended", expected=f"within {timeout}", remedy="wait longer, or stop it"
            )
        return self._result

    # -- in notebooks ------------------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        """The progress of the run, as HTML."""
        if self.is_running:
            outcome = "running" if not self._listener.is_asked_to_stop else "stopping"
        elif self._error is not None:
            outcome = f"failed: {self._error}"
        else:
            outcome = "ended" if self._result is None else self._result.outcome.value
        return self._listener.page.html(outcome)

    def _ipython_display_(self) -> None:
        """Show the progress of the run in the notebook's cell, until it ends."""
        from IPython.display import HTML, display

        shown = display(HTML(self._repr_html_()), display_id=True)

        def follow() -> None:
            while self.is_running:
                self._thread.join(_SHOW_S)
                shown.update(HTML(self._repr_html_()))

        if shown is not None:  # a terminal's IPython cannot update its output
            threading.Thread(target=follow, name="drivetrain-display", daemon=True).start()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _until_the_end(self) -> None:
        try:
            self._result = self._run(self._listener, self._has_begun)
        except BaseException as error:  # noqa: BLE001 - raised by `wait`
            self._error = error
        finally:
            self._clock_is_there.set()

    def _has_begun(self, running: Running) -> None:
        self._clock, self._changes = running.clock, running.changes
        self._clock_is_there.set()


class _Listener:
    def __init__(self, listener: RunListener) -> None:
        self._listener: Final = listener
        self.page: Final = RunPage()
        self.is_asked_to_stop = False

    def on_event(self, event: ProgressEvent) -> None:
        self.page.take(event)
        self._listener.on_event(event)

    def stop_requested(self) -> bool:
        return self.is_asked_to_stop or self._listener.stop_requested()


def _propose_application(changes: LiveChanges, application: Application, options: ChangeOptions) -> int:
    """Propose another graph of the application that this process runs; see `LiveChanges.propose`."""
    own = changes.versions.in_force.context
    if application.naming_settings != own.rundir.settings:
        raise UserError(
            "other settings make it another application",
            expected=str(own.rundir.settings),
            got=str(application.naming_settings),
            remedy="build the application with the settings of the one that runs",
        )
    return _propose_graph(changes, application.graph(), options)


def _propose_graph(changes: LiveChanges, graph: Graph, options: ChangeOptions) -> int:
    in_force = changes.versions.in_force
    ship(graph)
    record = planned_version(configured_plan(graph, in_force.context.config))
    code, against = code_if_possible(graph), in_force.record.number
    return changes.propose(RequestedChange(record, graph, code, "update", against, options))
