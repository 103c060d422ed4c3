"""Processes with a file sink in an object store are suspended at any request, are taken for lost, and wake
when others have continued their application: at any request of these, or when all is done.
"""

from __future__ import annotations

import io
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "spark" / "sinks"))
from arrow_frame import ArrowFrame
from suspended_process import COPIED, MESSAGES, SINK, SuspendedProcess, all_ended

from drivetrain import published_files
from drivetrain.api import sinks
from drivetrain.config import Config
from drivetrain.connectors.files import file_sink, partitioned_files, staging, stored_rolling
from drivetrain.connectors.opening import open_sink
from drivetrain.errors import InputError
from drivetrain.runtime.objects import locations
from drivetrain.runtime.whole_files import staging_folder
from drivetrain.simulator.simulate import SEED_VARIABLE, chosen_seeds, run_seeds
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.measure import small_batches
from model_store import ModelStore

PLACE = "s3://lake/out"
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"roll": ("3 KiB", "1 h")},
    {"roll": ("128 MiB", "1 ms")},
    {"partition_by": "odd"},
    {"partition_by": "odd", "roll": ("3 KiB", "1 h")},
)


class Readers:
    """Readers of the results, who look from time to time: nothing is ever twice, and nothing disappears."""

    _place = PLACE
    starts_over = False
    """Whether results disappear when the application starts over, and readers may see some of both."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self._ids: dict[bytes, list[int]] = {}
        self._whole: set[int] = set()

    def look(self, *, at_end: bool = False) -> None:
        counts = Counter(id for name in self._names() for id in self._content(name))
        if self.starts_over and not at_end:
            return
        twice = [id for id, times in counts.items() if times > 1]
        assert not twice, f"twice: {twice}"
        try:
            files = published_files(self._place)
        except InputError as error:
            if "no file sink has published here" not in str(error):
                raise
            files = {}
        whole = Counter(
            id for paths in files.values() for path in paths for id in self._published_content(path)
        )
        assert set(whole.values()) <= {1}, "twice in what was published together"
        # What a former process and its successor divide among partitions, both, looks unfinished meanwhile.
        divided = {id for name in self._divided() for id in self._content(name)}
        assert self._whole <= whole.keys() | divided, f"unpublished: {self._whole - whole.keys()}"
        self._whole |= set(whole)
        if at_end:
            assert sorted(counts) == list(range(MESSAGES))
            assert sorted(whole) == list(range(MESSAGES))

    def _names(self) -> list[str]:
        return [n for n in list(self.objects) if n.startswith("out/") and n.endswith(".parquet")]

    def _divided(self) -> list[str]:
        return [name for name in list(self.objects) if name.startswith("out/_drivetrain/dividing/")]

    def _published_content(self, path: str) -> list[int]:
        return self._content(path.partition("/")[2])

    def _content(self, name: str) -> list[int]:
        content = self.objects[name]
        if content not in self._ids:
            self._ids[content] = pq.read_table(io.BytesIO(content))["id"].to_pylist()
        return self._ids[content]


class World:
    """An application whose process is taken for lost once or more often."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(seed)
        self.directory = directory
        self.objects: dict[str, bytes] = {}
        self.readers = Readers(self.objects)
        self.sink = sinks.parquet(PLACE, **WAYS[seed % len(WAYS)])
        self.processes: list[SuspendedProcess] = []
        self.woken = 0

    def run(self) -> None:
        takeovers = self._takeovers = self.random.choice((1, 1, 2, 3))
        with all_ended(self.processes):
            for number in range(takeovers + 1):
                self._start(number)
                self._run_newest(is_last=number == takeovers)
            for process in self.processes:
                self._wake(process, 10_000)
                assert process.is_over, "it does not end"
            self._open_again()
            if all(process.was_refused or process.taken_over is not None for process in self.processes):
                self._start(takeovers + 1)  # all of them have ended each other, and the user tries again
                self._run_newest(is_last=True)
                assert self.processes[-1].taken_over is None
            self.readers.look(at_end=True)

    def _start(self, number: int) -> None:
        directory = self.directory / str(number)
        directory.mkdir()
        starts_over = self.readers.starts_over and number >= self._takeovers
        random = Random(self.random.random())
        process = SuspendedProcess(number, self.objects, self.sink, directory, random, starts_over)
        self.processes.append(process)

    def _open_again(self) -> None:
        """The user starts the application once more: it has finished."""
        state = self.processes[-1].directory / "state" / "sinks" / SINK
        if self.readers.starts_over and state.exists():
            config = Config.load(None, {}, COPIED)
            open_sink(self.sink, SinkContext("app-1", SINK, str(state), config)).validate()

    def _run_newest(self, *, is_last: bool) -> None:
        """Run the newest process while others wake and sleep; it is suspended unless it is the last."""
        newest, left = self.processes[-1], 10_000 if is_last else self.random.randrange(1, 250)
        while left > 0 and not newest.is_over:
            requests = self.random.choice((1, 1, 2, 5, 20))
            newest.run_on(requests)
            left -= requests
            self.readers.look()
            for process in self.processes[:-1]:
                if self.random.random() < 0.15:
                    self._wake(process, self.random.choice((1, 1, 2, 5, 20, 100)))
        self._require_sound(newest)

    def _wake(self, process: SuspendedProcess, requests: int) -> None:
        self.woken += not process.is_over
        process.run_on(requests)
        self._require_sound(process)
        self.readers.look()

    def _require_sound(self, process: SuspendedProcess) -> None:
        if process.error is not None:
            raise process.error


@pytest.fixture
def _stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_batches, "small_table", ArrowFrame.toArrow)
    monkeypatch.setattr(file_sink, "STORE_LOOK_S", 0.0)

    def of_a_process(filesystem: Any, folder: str) -> str:
        """Their local disks are different ones."""
        return f"{staging_folder(filesystem, folder)}-{threading.current_thread().name}"

    for module in (staging, stored_rolling, partitioned_files):
        monkeypatch.setattr(module, "staging_folder", of_a_process)


def suspended(seed: int, monkeypatch: pytest.MonkeyPatch, made: type[World] = World) -> World:
    """Run one application; raises what is wrong."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        world = made(seed, Path(place))

        def store_of(_bucket: str, settings: Any, *_: Any) -> ModelStore:
            number = (settings.endpoint or "").removeprefix("http://process-")
            return world.processes[int(number)].store if number else ModelStore(world.objects)

        monkeypatch.setattr(locations, "ObstoreStore", store_of)
        locations._connected.cache_clear()
        try:
            world.run()
        except BaseException as error:
            error.add_note(f"run it again alone with {SEED_VARIABLE}={seed}")
            sys.stderr.write(f"failed with {SEED_VARIABLE}={seed}\n")
            raise
        finally:
            locations._connected.cache_clear()
        return world


@pytest.mark.usefixtures("_stores")
def test_a_suspended_process_that_wakes_shows_nothing_twice_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worlds: list[World] = []
    run_seeds(lambda seed: worlds.append(suspended(seed, monkeypatch)), chosen_seeds(15, at_most=1000))
    assert len(worlds) == 1 or sum(world.woken for world in worlds) > len(worlds)


class StartedOverWorld(World):
    """The last process starts over: what the others had published is deleted, and must not come back."""

    def __init__(self, seed: int, directory: Path) -> None:
        super().__init__(seed, directory)
        self.readers.starts_over = True


@pytest.mark.usefixtures("_stores")
def test_results_of_a_state_that_is_gone_do_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds: list[World] = []
    run_seeds(
        lambda seed: worlds.append(suspended(seed, monkeypatch, StartedOverWorld)),
        chosen_seeds(10, at_most=1000),
    )
    assert len(worlds) == 1 or sum(world.woken for world in worlds) > len(worlds)
