"""Processes with a file sink on a file system that several machines share, whose checkpoints are copied, are
suspended before any change of a file or request to the store; the rest is as in `test_suspended_file_sink`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from shell_disk import watching

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "spark" / "sinks"))
from suspended_process import CURRENT
from test_suspended_file_sink import WAYS, ArrowFrame, Readers, StartedOverWorld, World, suspended

from drivetrain.api import sinks
from drivetrain.connectors.files import output_ownership, publication_manifest, staging
from drivetrain.runtime import file_locations
from drivetrain.simulator.simulate import chosen_seeds, run_seeds
from drivetrain.spark.measure import small_batches


def before(path: str) -> None:
    """A process is about to change a file of the output, and may be suspended."""
    process = getattr(CURRENT, "process", None)
    if process is not None and "/out" in path:
        process._before("change", path)


class SharedFiles(pafs.LocalFileSystem):  # type: ignore[misc] # pyarrow has no types
    """The local file system, on which processes may be suspended before each change."""

    def create_dir(self, path: str, **how: Any) -> None:
        before(path)
        super().create_dir(path, **how)

    def delete_file(self, path: str) -> None:
        before(path)
        super().delete_file(path)

    def delete_dir(self, path: str) -> None:
        before(path)
        super().delete_dir(path)

    def delete_dir_contents(self, path: str, **how: Any) -> None:
        before(path)
        super().delete_dir_contents(path, **how)

    def open_output_stream(self, path: str, **how: Any) -> Any:
        before(path)
        return super().open_output_stream(path, **how)


class LocalReaders(Readers):
    """Readers who list the directory."""

    def __init__(self, place: Path) -> None:
        super().__init__({})
        self._place = str(place)

    def _names(self) -> list[str]:
        found = (path.relative_to(self._place) for path in Path(self._place).rglob("part-*.parquet"))
        return [str(path) for path in found if path.parts[0] != "_drivetrain"]

    def _divided(self) -> list[str]:
        place = Path(self._place)
        return [str(path.relative_to(place)) for path in place.glob("_drivetrain/dividing/*.waiting")]

    def _published_content(self, path: str) -> list[int]:
        return self._content(str(Path(path).relative_to(self._place)))

    def _content(self, name: str) -> list[int]:
        return [int(id) for id in pq.ParquetFile(Path(self._place, name)).read(["id"])["id"].to_pylist()]


class LocalWorld(World):
    """An application whose output is a local directory that its processes share."""

    def __init__(self, seed: int, directory: Path) -> None:
        super().__init__(seed, directory)
        self.readers = LocalReaders(directory / "out")
        self.sink = sinks.parquet(directory / "out", **WAYS[seed % len(WAYS)])


class StartedOverLocalWorld(LocalWorld, StartedOverWorld):
    """The last process starts over."""

    def __init__(self, seed: int, directory: Path) -> None:
        super().__init__(seed, directory)
        self.readers.starts_over = True


@pytest.fixture
def _shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_batches, "small_table", ArrowFrame.toArrow)
    locate = file_locations.locate

    def located(place: str, stores: Any = None) -> tuple[pafs.FileSystem, str]:
        filesystem, path = locate(place, stores)
        return SharedFiles() if isinstance(filesystem, pafs.LocalFileSystem) else filesystem, path

    for module in (output_ownership, publication_manifest, staging):
        monkeypatch.setattr(module, "locate", located)


@pytest.mark.usefixtures("_shared")
def test_a_suspended_process_that_wakes_shows_nothing_twice_on_a_shared_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worlds: list[World] = []
    with watching(before):
        run_seeds(
            lambda seed: worlds.append(
                suspended(seed, monkeypatch, StartedOverLocalWorld if seed % 3 == 2 else LocalWorld)
            ),
            chosen_seeds(9, at_most=1000),
        )
    assert len(worlds) == 1 or sum(world.woken for world in worlds) > len(worlds)
