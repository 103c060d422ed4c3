"""Whatever the graph, the disorder and the crashes: the outputs are those of one plain computation.

`DRIVETRAIN_SEEDS` says how many graphs are tried (the nightly run), `DRIVETRAIN_SEED=n` runs one.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import random_graphs
from harness import Harness
from random_graphs import Recipe, build, expected, recipe_of, results, write_inputs

from drivetrain.core.progress import ProgressEvent, RunOutcome
from drivetrain.spark.branches import Branches
from drivetrain.spark.channel.store import ChannelStore
from drivetrain.testing.simulate import chosen_seeds

CHOSEN = bool({"DRIVETRAIN_SEED", "DRIVETRAIN_SEEDS"} & os.environ.keys())
IN_PROCESS = list(chosen_seeds(60, 60)) if CHOSEN else [7, 10]
"""By default one with windows of windows and narrow channels, and a join of two sources."""
KILLED = list(chosen_seeds(12, 12)) if CHOSEN else [8]
KILLS = 3 if "DRIVETRAIN_SEEDS" in os.environ else 1
BATCH = "2 KiB"
"""So little that every file is several batches."""
NARROW = {"channel.window-messages": "25", "channel.window-batches": "2"}
"""Windows of channels in every other graph: producers wait all the time."""

APPLICATION = """
import pathlib, sys
here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here))
from random_graphs import build, recipe_of
app = build(recipe_of({seed}), here / "in", here / "out")
"""


class CrashError(RuntimeError):
    """What a fragment meets in the middle of a batch."""


class Crashes:
    """Fails some calls of what makes a batch durable, before or after they have had their effect."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.left = draw.randint(1, 3)
        self.told: list[str] = []
        self._until = draw.randrange(1, 8)

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """The time in which calls may fail."""
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in ((ChannelStore, "_append"), (Branches, "run"), (Branches, "append")):
                patch.setattr(owner, name, self._failing(getattr(owner, name), f"{owner.__name__}.{name}"))
            yield

    def _failing(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def perhaps(*args: Any, **kwargs: Any) -> Any:
            self._until -= 1
            if self._until > 0 or self.left == 0:
                return call(*args, **kwargs)
            self.left -= 1
            self._until = self.draw.randrange(1, 15)
            after = self.draw.random() < 0.5
            if after:
                call(*args, **kwargs)
            self.told.append(f"{'after' if after else 'before'} {name}")
            raise CrashError(self.told[-1])

        return perhaps


class StopSometimes:
    """Asks to stop after a random number of events; then never again."""

    def __init__(self, draw: random.Random) -> None:
        self.left = draw.randint(3, 20) if draw.random() < 0.4 else None

    def on_event(self, event: ProgressEvent) -> None:
        """Count it."""
        if self.left is not None:
            self.left -= 1

    def stop_requested(self) -> bool:
        """Whether enough has happened."""
        return self.left is not None and self.left <= 0


def windows_of(seed: int) -> dict[str, str]:
    """The windows of channels in the application of a seed, as keys of the configuration."""
    return NARROW if seed % 2 else {}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", IN_PROCESS)
def test_a_random_graph_gives_what_loops_give_whatever_fails_on_the_way(drive: Harness, seed: int) -> None:
    recipe = recipe_of(seed)
    write_inputs(recipe, drive.directory / "in")
    draw = random.Random(seed + 1)
    crashes = Crashes(draw)
    keys = {"run.max-batch-bytes": BATCH, **windows_of(seed)}
    given = {key.replace(".", "__").replace("-", "_"): value for key, value in keys.items()}
    with crashes.planted():
        for _ in range(10):
            app = build(recipe, drive.directory / "in", drive.directory / "out")
            try:
                outcome = drive.run(app, listener=StopSometimes(draw), **given).outcome
            except Exception as error:
                if not crashes.told or crashes.told[-1] not in f"{error} {error.__cause__}":
                    raise AssertionError(f"{recipe.told()}\n{crashes.told}") from error
                continue
            if outcome is RunOutcome.FINISHED:
                break
    _judge(recipe, drive.directory / "out", crashes.told)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", KILLED)
def test_a_random_graph_whose_process_is_killed_gives_what_loops_give(tmp_path: Path, seed: int) -> None:
    recipe = recipe_of(10_000 + seed)
    write_inputs(recipe, tmp_path / "in")
    shutil.copy(random_graphs.__file__, tmp_path / "random_graphs.py")
    (tmp_path / "app.py").write_text(APPLICATION.format(seed=recipe.seed).lstrip())
    draw, kills = random.Random(seed), []
    for attempt in range(8):
        process = _started(tmp_path, windows_of(seed))
        segments = _segments(tmp_path)
        goal = segments + draw.randint(1, 3)
        deadline = time.monotonic() + 240
        while attempt < KILLS and process.poll() is None and time.monotonic() < deadline:
            if _segments(tmp_path) >= goal:
                time.sleep(draw.random())  # not waiting for anything: a random moment to die at
                os.killpg(process.pid, signal.SIGKILL)
                kills.append(f"killed with {_segments(tmp_path)} segments on disk")
                break
            time.sleep(0.02)
        output = process.communicate(timeout=300)[0].decode()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, f"{recipe.told()}\n{output}"
    assert process.returncode == 0, f"{recipe.told()}\n{output}"
    _judge(recipe, tmp_path / "out", kills)


def _judge(recipe: Recipe, output: Path, story: list[str]) -> None:
    found, wanted = results(recipe, output), expected(recipe)
    for i in recipe.sunk:
        missing, extra = wanted[i] - found[i], found[i] - wanted[i]
        if missing or extra:
            raise AssertionError(
                f"stream {i} of {wanted[i].total()}: missing {sorted(missing.elements())[:5]}, "
                f"too many {sorted(extra.elements())[:5]}\n{recipe.told()}\n{story}"
            )


def _segments(directory: Path) -> int:
    return sum(1 for _ in (directory / "state").glob("**/log/0*.json"))


def _started(directory: Path, windows: dict[str, str]) -> subprocess.Popen[bytes]:
    sets = {
        **windows,
        "run.max-batch-bytes": BATCH,
        "spark.master": "local[2]",
        "spark.driver-memory": "1 GiB",
    }
    line = [sys.executable, "-m", "drivetrain.cli", "run", str(directory / "app.py")]
    line += ["--state-dir", str(directory / "state")]
    line += [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
