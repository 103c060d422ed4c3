"""The process that runs a randomly changed application, killed and started again, and the changes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from random_changes import Drawn, drawn_app, edited, next_of, program
from random_model import InForce
from shop import rows, wait_until
from timed import APART_MS, HOUR_MS, Disordered, time_of_ms

from drivetrain.api.graphs.graph import Graph
from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.graph_version import Made, version_of
from drivetrain.core.change.handover import ChangeTime
from drivetrain.core.plan.planner import plan
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.control_requests import ask_change, ask_to_scale, asked_state, wait_ended, wait_scaled
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.prepare.graph_code import graph_as_code, graph_from_code

CHANGE_S = 240.0
TOO_EARLY_OR_LATE = (
    "no message has come yet, so there is no next window",
    "messages of that time and later are processed already",
)
"""Why a change may be refused that is not at fault."""
LATEST_KILL_S = 6.0
"""When a process is killed at the latest, counted from the request for a change, or from its start."""


class Stream:
    """Feeds a file at a time, out of order, as long as the application keeps up with it."""

    AHEAD = 60

    def __init__(self, feed: Disordered, pause_s: float) -> None:
        self.feed = feed
        self.pause_s = pause_s
        self.before_ms: int | None = None
        """Only messages before this time are sent; None: all."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        shown = self.feed.directory.parent / "hopped"
        while not self._is_over.wait(self.pause_s):
            is_held = self.before_ms is not None and self.feed.latest_ms >= self.before_ms
            if not is_held and len(self.feed.sent) - len(rows(shown)) < self.AHEAD:
                self.feed.put(1)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


class DiedError(Exception):
    """The process was killed while something was asked of it."""


class DrawnRun:
    """An application in `directory`: the process that runs it, and its versions."""

    def __init__(self, directory: Path, random: Random, stream: Stream) -> None:
        self.directory = directory
        self.random = random
        self.stream = stream
        self.rundir = RunDirectory(str(directory / "state"), "drawn", {})
        self.known: dict[int, Drawn] = {1: Drawn()}
        """The versions by their number."""
        self.code = 1
        self.handed_over = self.kills = self.scaled = 0
        self._process: subprocess.Popen[bytes] | None = None

    # -- the process ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it with the file of the version in force."""
        line = [sys.executable, "-m", "drivetrain.cli", "run", str(program(self.directory, self.now))]
        line += ["--state-dir", str(self.directory / "state"), "--set", "spark.master=local[2]"]
        line += ["--set", "spark.driver-memory=1 GiB"]
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                line, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self, *, with_java: bool) -> None:
        """Kill it, and its Java process, which ends by itself otherwise."""
        assert self._process is not None
        self.kills += 1
        if with_java:
            os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Have it end by itself."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(CHANGE_S) in (0, 130), self.output()

    def close(self) -> None:
        """Leave nothing of it."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def output(self) -> str:
        """The end of what it has written."""
        return (self.directory / "output").read_text()[-3_000:]

    @contextmanager
    def killed_after(self, delay_s: float | None) -> Iterator[None]:
        """Kill it so much later, whatever the body does then, and start it again; None: it lives."""
        if delay_s is None:
            yield
            return
        timer = threading.Timer(delay_s, self.kill, kwargs={"with_java": self.random.random() < 0.5})
        timer.start()
        try:
            with suppress(DiedError):
                yield
        finally:
            timer.join()
        self.start()
        self.settle()

    # -- its versions ----------------------------------------------------------------------------------

    @property
    def now(self) -> Drawn:
        """The version in force."""
        record = self.rundir.versions.in_force()
        return Drawn() if record is None else self.known[record.number]

    def versions(self) -> list[InForce]:
        """Those that were in force, in that order; after one that was rolled back comes the one before."""
        stored, found = self.rundir.versions, list[InForce]()
        by_number: dict[int, InForce] = {}
        for number in stored.numbers():
            record = stored.version(number)
            assert number == 1 or record.made_how != "run", f"version {number} came by a start"
            own = InForce(self.known[number], record.at_ms, self.known.get(record.follows))
            by_number[number] = own
            found.append(own)
            if stored.is_rolled_back(number):
                former = by_number[record.follows]
                found.append(InForce(former.drawn, former.at_ms, former.before, returns=True))
        return found

    def settle(self) -> None:
        """Wait until no version is on trial, and none hands over; raises DiedError."""

        def is_settled() -> bool:
            record = self.rundir.versions.in_force()
            if record is None or self.rundir.versions.is_on_trial(record):
                return False
            with suppress(UnavailableError):
                return not asked_state(self.rundir).both
            return False

        self._wait(is_settled)
        self._wait(lambda: not self._left())

    def _wait(self, holds: object) -> None:
        assert callable(holds)
        wait_until(lambda: holds() or not self.is_running(), lambda: True)
        if not holds():
            if self._process is not None and self._process.returncode == -signal.SIGKILL:
                raise DiedError
            raise AssertionError(f"the application has ended: {self.output()}")

    def _left(self) -> list[str]:
        """What is left of the windows that the version in force lacks."""
        gone = {0, 1} - set(self.now.windows)
        return [f"window{n}" for n in gone if (self.rundir.path / "fragments" / f"window{n}").exists()]

    # -- changes -----------------------------------------------------------------------------------------

    def change(self) -> None:
        """Change it once; raises DiedError."""
        self.code += 1
        draw = self.random.random()
        if draw < 0.15:
            self._scale()
        elif draw < 0.3 and len(self.rundir.versions.numbers()) > 2:
            self._roll_back()
        elif draw < 0.65:
            self._update_at_a_time()
        else:
            drawn = next_of(self.now, self.code, self.random)
            graph = self._graph(drawn)
            self._ask(drawn, graph, "update", None)
            self.settle()

    def _graph(self, drawn: Drawn) -> Graph:
        """The graph of a version: of its file, or as edits of the one that runs."""
        stored, record = self.rundir.versions, self.rundir.versions.in_force()
        assert record is not None
        code = stored.code(record.number)
        if self.random.random() < 0.5 and code is not None:
            made = edited(graph_from_code(code, "in force"), self.directory, self.now, drawn)
            if made is not None:
                return made
        return drawn_app(self.directory, drawn).graph()

    def _ask(self, drawn: Drawn, graph: Graph, how: Made, at: ChangeTime) -> Outcome | None:
        """Ask for a change, and wait for its end; None when its time has passed. Raises DiedError."""
        stored, before = self.rundir.versions, self.rundir.versions.in_force()
        assert before is not None
        record = version_of(plan(graph), fingerprint)
        self.known[max(stored.numbers()) + 1] = drawn
        options, code = ChangeOptions(at=at), graph_as_code(graph)
        if isinstance(at, int) and self.random.random() < 0.8:  # else its time may pass meanwhile
            self.stream.before_ms = at
        try:
            number = ask_change(self.rundir, record, code, before.number, how, options)
            self.stream.before_ms = None
            state = wait_ended(lambda: asked_state(self.rundir), number, CHANGE_S)
        except UserError as refused:
            if refused.what not in TOO_EARLY_OR_LATE:
                raise
            return None
        except UnavailableError:
            self._wait(lambda: False)  # until it has died
            raise
        finally:
            self.stream.before_ms = None
        assert state.outcome is (Outcome.ROLLED_BACK if drawn.fails else Outcome.DONE), (drawn, state)
        return state.outcome

    def _update_at_a_time(self) -> None:
        drawn = next_of(self.now, self.code, self.random, timed=True)
        sizes = [which + 1 for which in drawn.windows if drawn.after != self.now.after]
        at: ChangeTime = "next-window"
        if not sizes or self.random.random() < 0.6:
            step = max(sizes, default=0) * HOUR_MS or 1
            later_ms = self.random.choice((1, APART_MS, APART_MS // 2, HOUR_MS, 3 * HOUR_MS, 5 * HOUR_MS))
            at_ms = max(map(time_of_ms, self.stream.feed.sent)) + later_ms
            at = -(-at_ms // step) * step
        outcome = self._ask(drawn, self._graph(drawn), "update", at)
        if outcome is Outcome.DONE:
            self.handed_over += 1
            if self.random.random() < 0.25 and asked_state(self.rundir).both:
                record = self.rundir.versions.in_force()
                assert record is not None
                self._return_to(record.follows)
        self.settle()

    def _roll_back(self) -> None:
        """Return to some earlier version."""
        stored = self.rundir.versions
        fine = [n for n in stored.numbers() if not self.known[n].fails and self.known[n] != self.now]
        if fine:
            self._return_to(self.random.choice(fine))
            self.settle()

    def _return_to(self, number: int) -> None:
        code = self.rundir.versions.code(number)
        assert code is not None
        self._ask(self.known[number], graph_from_code(code, f"version {number}"), "rollback", None)

    def _scale(self) -> None:
        """Divide the state of a window again, if it has one."""
        windows = self.now.windows
        if not windows:
            return
        with suppress(UserError):  # it has so many partitions, or no batch yet
            ask_to_scale(self.rundir, f"window{self.random.choice(windows)}", self.random.randrange(1, 5))
            try:
                state = wait_scaled(lambda: asked_state(self.rundir), CHANGE_S)
            except UnavailableError:
                self._wait(lambda: False)
                raise
            self.scaled += state.is_over and not state.why
