"""Runs the application of a recipe on the test's Spark, with the recipe's crashes, and judges its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import drivetrain
from drivetrain import Application
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.core.job.run_progress import (
    FragmentProgressed,
    FragmentStateChanged,
    ProgressEvent,
    RunOutcome,
    RunResult,
    RunStarted,
)
from drivetrain.crash_points import VARIABLE, CrashPoint, armed
from drivetrain.errors import UnavailableError

from .checking import differences
from .model import dead_letters, streams_of
from .program import LIFE, program_of
from .recipe import Persistent, Recipe
from .values import same

QUIET_S = 90.0
"""A run in which nothing happens for so long is considered stuck, however busy the machine is."""
LOOK_S = 0.3
KILLED_S = 240.0
SILENT_S = 45.0
"""A process whose inputs do not end, and that does not reach its crash point, is killed after so long."""
MOST_RUNS = 12
LATE = "did not start in time"
"""Part of the error about a Python process on a busy machine: the same command continues."""


class CrashError(RuntimeError):
    """Raised at an armed crash point."""


class Crashes:
    """Raises at the recipe's crash points, one after the other: the next counts from the crash before it."""

    def __init__(self, points: tuple[tuple[str, int], ...]) -> None:
        self._left = [(CrashPoint(point), time) for point, time in points]
        self.story: list[str] = []
        self.lives = 0

    def begin_life(self) -> None:
        """Pass the number of the next life to the application that is loaded next."""
        self.lives += 1
        os.environ[LIFE] = str(self.lives)

    def __call__(self, point: CrashPoint) -> None:
        if not self._left or point is not self._left[0][0]:
            return
        self._left[0] = (point, self._left[0][1] - 1)
        if self._left[0][1] == 0:
            del self._left[0]
            self.story.append(f"died at {point}")
            raise CrashError(self.story[-1])

    def has_raised(self, error: BaseException) -> bool:
        """Whether an error of a run is a crash; of two fragments that died in one run, it may be either.

        A Python process that started late on a busy machine counts as one, too: the same command continues.
        """
        is_late = isinstance(error, UnavailableError) and LATE in error.what
        return is_late or any(crash in f"{error} {error.__cause__}" for crash in self.story)


class Patience:
    """A listener that asks a run to stop when nothing happens in it any more."""

    def __init__(self) -> None:
        self._batches: dict[str, object] = {}
        self._since_s = time.monotonic()

    def on_event(self, event: ProgressEvent) -> None:
        """Note that something has happened: a batch, a change of state."""
        match event:
            case FragmentProgressed(fragment=fragment, batch_id=batch):
                is_new = self._batches.get(fragment) != batch
                self._batches[fragment] = batch
            case FragmentStateChanged() | RunStarted():
                is_new = True
            case _:
                is_new = False
        if is_new:
            self._since_s = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether nothing has happened for too long."""
        return time.monotonic() - self._since_s > QUIET_S

    def stop_requested(self) -> bool:
        """Whether to stop."""
        return self.is_over


def failure_of(recipe: Recipe, folder: Path, name: str, killed: Sequence[str] = ()) -> str | None:
    """The failure of a recipe's application, whose files are `folder`/`name`*; None if it is correct.

    `killed` lists the points at which earlier processes died.
    """
    crashes = Crashes(recipe.crashes)
    crashes.story += killed
    crashes.lives = len(killed)
    try:
        file = written(recipe, folder, name)
        with armed(crashes):
            wrong = _watched(recipe, file, crashes) if recipe.watched else _bounded(recipe, file, crashes)
    except Exception:  # noqa: BLE001 - whatever an application raises is what its seed has found
        wrong = [traceback.format_exc()[-6_000:]]
    return "\n".join([*wrong, *crashes.story]) if wrong else None


def written(recipe: Recipe, folder: Path, name: str) -> Path:
    """The program of a recipe as a file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.py"
    file.write_text(program_of(recipe))
    return file


def config_of(recipe: Recipe, file: Path) -> Config:
    """The configuration of a recipe; its state is beside its file."""
    return Config.load(None, {}, {"state.dir": str(file.with_suffix("") / "state"), **dict(recipe.sets)})


def _bounded(recipe: Recipe, file: Path, crashes: Crashes) -> list[str]:
    config = config_of(recipe, file)
    for _ in range(MOST_RUNS):
        crashes.begin_life()
        app = load_application(str(file), {})
        try:
            result = drivetrain.run(app, config, Patience())
        except Exception as error:
            if crashes.has_raised(error):
                continue
            raise
        if result.outcome in (RunOutcome.FINISHED, RunOutcome.ALREADY_FINISHED):
            wrong = differences(recipe, file.with_suffix(""))
            return wrong + _asked(recipe, app, config) + ([] if crashes.story else _set_aside(recipe, result))
        return [f"it did not end: {result.outcome} after {QUIET_S:.0f} s without a batch"]
    return [f"it did not end in {MOST_RUNS} runs"]


def _watched(recipe: Recipe, file: Path, crashes: Crashes) -> list[str]:
    """Wait until the sinks hold what they must; then stop the run, which must not change them."""
    home, config = file.with_suffix(""), config_of(recipe, file)
    for _ in range(MOST_RUNS):
        wrong, patience = ["it did not begin"], Patience()
        crashes.begin_life()
        try:
            with drivetrain.start(load_application(str(file), {}), config, patience) as running:
                while running.is_running and not patience.is_over and (wrong := differences(recipe, home)):
                    time.sleep(LOOK_S)
            running.wait()
        except Exception as error:
            if crashes.has_raised(error):
                continue
            raise
        return [f"its inputs are silent: {line}" for line in wrong] or differences(recipe, home)
    return [f"it did not end in {MOST_RUNS} runs"]


def _asked(recipe: Recipe, app: Application, config: Config) -> list[str]:
    """Compare the final answers of persistent Tasks with the model; returns the differences."""
    wrong, streams = [], streams_of(recipe)
    for i, step in enumerate(recipe.steps, len(recipe.sources)):
        if isinstance(step, Persistent) and step.how == "asked":
            wanted = Counter((m.key, m.n) for m in streams[i].messages)
            kept = drivetrain.state(app, f"step{i}", config).items()
            found: Counter[Any] = Counter((same(one.key), one.value) for one in kept)
            if found != wanted:
                wrong.append(f"the state of step{i} is {found}, not {wanted}")
    return wrong


def _set_aside(recipe: Recipe, result: RunResult) -> list[str]:
    wanted = dead_letters(recipe)
    found = sum(processor.dead_lettered for processor in result.processors)
    return [] if found == wanted or not result.processors else [f"{found} dead letters, not {wanted}"]


# -- in a process of its own ------------------------------------------------------------------------


def failure_of_killed(recipe: Recipe, folder: Path, name: str, deaths: list[str] | None = None) -> str | None:
    """Like `failure_of`, in processes killed at the recipe's crash points; this process runs the rest.

    A process that ends before its point has finished the application: it is judged, and the next point gets
    a new application; one whose inputs do not end is killed wherever it is. Adds the points at which
    processes died to `deaths`.
    """
    file = written(recipe, folder, name)
    killed: list[str] = []
    alive = replace(recipe, crashes=())
    for run, point in enumerate(f"{point}:{nth}" for point, nth in recipe.crashes):
        process = _process(recipe, file, {VARIABLE: point, LIFE: str(len(killed) + 1)})
        try:
            output = process.communicate(timeout=SILENT_S if recipe.watched else KILLED_S)[0].decode()
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            if recipe.watched:
                process.communicate()
                killed.append(f"killed before {point}")
                continue
            return f"run {run} did not end in {KILLED_S:.0f} s\n{process.communicate()[0].decode()[-4_000:]}"
        if process.returncode == 0:
            failure = failure_of(alive, folder, file.stem, killed)
            if failure is not None or killed:
                return failure
            file = written(recipe, folder, f"{name}_{run + 1}")
            continue
        if process.returncode != -signal.SIGKILL and LATE not in output:
            return f"exit code {process.returncode}\n{output[-4_000:]}"
        killed.append(f"killed at {point}")
        if deaths is not None and process.returncode == -signal.SIGKILL:
            deaths.append(point)
    return failure_of(alive, folder, file.stem, killed)


def _process(recipe: Recipe, file: Path, crash: Mapping[str, str]) -> subprocess.Popen[bytes]:
    sets = {**dict(recipe.sets), "spark.master": "local[2]", "spark.driver-memory": "1 GiB"}
    line = [sys.executable, "-m", "drivetrain.cli", "run", str(file)]
    line += ["--state-dir", str(file.with_suffix("") / "state")]
    line += [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    return subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, **crash},
    )
