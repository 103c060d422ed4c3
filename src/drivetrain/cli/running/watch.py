"""`drivetrain run --watch`: runs an application, and again whenever one of its files has changed.

Problem: the author of an application wants to see the effect of each change without processing all messages
again, and a mistake in the code must not stop the running application.

Design: the application runs in a separate process, as `drivetrain run` runs it, so that changed modules are
loaded again everywhere, also in Spark's workers. When files have changed and then stay the same for two
looks, another process plans the new application. Only if the new one can be planned and can continue with the
state of the old one, the old one is stopped as by Ctrl-C, and the new one continues from the last committed
batch. A look compares the modification times and sizes of the files: that works on every file system and
takes less than a millisecond. The files are those that may belong to an application by the rules of
`drivetrain submit`, so neither environments nor the results of sinks.

Invariants:

1. At most one process runs the application.
2. The running application is stopped only for one that can replace it, or when the user stops the command.
3. When this command ends, the processes that it started have ended.
4. Each signal that this command gets reaches the process that runs the application, also one that it gets
   while it starts that process.

Called by `cli.running.run`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final, Protocol

from drivetrain.cli.arguments import config_file
from drivetrain.cli.running.stop import SignalContext
from drivetrain.code.application_file import split_target
from drivetrain.code.archive import is_skipped
from drivetrain.terminal import print_line

LOOK_S: Final = 0.3
"""How often files are looked at; they have come to rest when two looks see the same."""
_PROGRAM: Final = (sys.executable, "-m", "drivetrain.cli")
PLAN_S: Final = 120.0
"""How long a plan of the changed application may take."""
_MOST_FILES: Final = 5000

Look = Mapping[str, tuple[int, int]]
"""The times of the last change in ns, and the sizes, by path."""


class StartedRun(Protocol):
    """An application that was started."""

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        ...

    def stop(self) -> int:
        """Stop it as Ctrl-C does, and wait for its end; returns its exit code."""
        ...

    def wait(self) -> int:
        """Wait for its end after it was asked to stop; returns its exit code."""
        ...


def files_of(application: Path, config: Path | None) -> Look:
    """The Python files in the folder of an application's file and below it, and the configuration file.

    `config` is the one that was given; the file may come and go while it is watched.
    """
    found: dict[str, tuple[int, int]] = {}
    for folder, folders, files in os.walk(application.resolve().parent):
        folders[:] = [name for name in folders if not is_skipped(Path(folder, name))]
        for name in files:
            if name.endswith(".py") and len(found) < _MOST_FILES:
                _look_at(os.path.join(folder, name), found)
    settings = config_file(config)
    for path in (application, *([] if settings is None else [settings])):
        _look_at(os.path.realpath(path), found)
    return found


def _look_at(path: str, found: dict[str, tuple[int, int]]) -> None:
    try:
        status = os.stat(path)
    except OSError:
        return  # it was deleted, or is being replaced: the next look will show which
    found[path] = (status.st_mtime_ns, status.st_size)


@dataclass
class Watch:
    """Decides what to do at each look.

    `start` starts the application. `problem` returns why the one in the files cannot replace it; None if it
    can. `say` prints a line. `is_over` returns whether the user has stopped the command.
    """

    start: Callable[[], StartedRun]
    problem: Callable[[], str | None]
    say: Callable[[str], None]
    is_over: Callable[[], bool] = lambda: False
    running: StartedRun | None = None
    _known: Look | None = None
    _last: Look | None = None
    _end_is_reported: bool = field(default=False)

    def begin(self, look: Look) -> None:
        """Start the application as it is."""
        self._known = self._last = look
        self.running = self.start()

    def see(self, look: Look) -> None:
        """React to the files as they are now."""
        is_at_rest, self._last = look == self._last, look
        if is_at_rest and look != self._known:
            changed = changes(self._known or {}, look)
            self._known = look
            self._change(changed)
        elif (
            not self._end_is_reported
            and self.running is not None
            and (code := self.running.ended()) is not None
        ):
            self._end_is_reported = True
            self.say(f"the application has ended with exit code {code}; it starts again when a file changes")

    def _change(self, changed: Sequence[str]) -> None:
        problem = self.problem()
        if self.is_over():
            return
        runs = self.running is not None and self.running.ended() is None
        if problem is not None:
            effect = "the running application continues" if runs else "nothing runs"
            self.say(f"{problem}\nnot restarted after a change of {', '.join(changed)}: {effect}")
            return
        self.say(f"restarting after a change of {', '.join(changed)}")
        if runs and self.running is not None:
            self.running.stop()
        if not self.is_over():
            self.running, self._end_is_reported = self.start(), False


def changes(before: Look, after: Look) -> list[str]:
    """The names of the files that are not the same, at most five."""
    names = [Path(path).name for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    return names if len(names) <= 5 else [*names[:5], f"{len(names) - 5} more"]


# -- processes -------------------------------------------------------------------------------------------


class RunProcess:
    """`drivetrain run` in a process; it reads and writes what this one does."""

    def __init__(self, arguments: Sequence[str]) -> None:
        # In a group of its own: a terminal's Ctrl-C goes to this command alone, which passes it on once.
        self._process = subprocess.Popen(
            [*_PROGRAM, "run", *arguments], process_group=0, stdin=subprocess.DEVNULL
        )

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def stop(self) -> int:
        """Stop it as Ctrl-C does, and wait for its end."""
        self.signal(signal.SIGINT)
        return self.wait()

    def signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end."""
        return self._process.wait()


class SignalForwarding(SignalContext):
    """The signals that this command gets, passed on to the process that runs the application.

    A context; `start` makes a process. The first signal stops the process cleanly, the second one ends it at
    once.
    """

    def __init__(self, start: Callable[[], RunProcess]) -> None:
        super().__init__()
        self._start: Final = start
        self.received: Final[list[int]] = []
        """The numbers of all that came."""
        self._waiting: Final[list[int]] = []  # those that came when there was no process
        self._process: Final[list[RunProcess]] = []  # empty while no process runs

    def start(self) -> RunProcess:
        """Start a process, in the place of one that has ended."""
        self._process.clear()
        process = self._start()
        self._process.append(process)  # from here on the handler passes signals on, and none waits any more
        while self._waiting:
            process.signal(self._waiting.pop(0))
        return process

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Pass a signal on, or keep it until there is a process."""
        self.received.append(number)
        if self._process and self._process[0].ended() is None:
            self._process[0].signal(number)
        else:
            self._waiting.append(number)


def why_not(arguments: Sequence[str], within_s: float = PLAN_S) -> str | None:
    """Why the application that `arguments` name cannot take the place of what ran; None if it can.

    Each of two plans may take `within_s`.
    """
    plan = [*_PROGRAM, "plan", *arguments, "--json"]
    try:
        planned = _output_of(plan, within_s)
        if planned.returncode:
            return planned.stderr.strip()
        name = json.loads(planned.stdout)["application"]
        compared = _output_of([*plan, "--against", name], within_s)
    except subprocess.TimeoutExpired:
        return f"planning the changed application takes longer than {within_s:g} s"
    if compared.returncode and compared.stdout:  # else nothing has run yet, or under several settings
        refused = [c for c in json.loads(compared.stdout)["against"]["changes"] if c["fate"] == "refused"]
        reasons = "\n".join(f"  {change['id']}: {change['why']}" for change in refused)
        return f"the changed application cannot continue with the state:\n{reasons}"
    return None


def _output_of(command: Sequence[str], within_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False)


def watch_application(target: str, config: Path | None, plan: Sequence[str], first: Sequence[str]) -> int:
    """Run the application of `target` until the user stops it; returns the exit code of the command.

    `plan` are the arguments of the command that `drivetrain plan` takes, too; `first` those of the first run
    alone.
    """
    given = [*plan, *first]

    def start() -> RunProcess:
        process = RunProcess(given)
        del given[len(plan) :]
        return process

    def say(line: str) -> None:
        print_line(line, file=sys.stderr, flush=True)

    application, _ = split_target(target)
    with SignalForwarding(start) as signals:
        watch = Watch(signals.start, lambda: why_not(plan), say, lambda: bool(signals.received))
        try:
            watch.begin(files_of(application, config))
            while not signals.received:
                time.sleep(LOOK_S)
                watch.see(files_of(application, config))
            return 128 + signals.received[0]
        finally:
            if watch.running is not None:
                watch.running.wait() if signals.received else watch.running.stop()
