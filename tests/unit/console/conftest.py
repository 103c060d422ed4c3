"""Consoles of scripted clusters: one for all tests of a module, or one for each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from console_in_thread import ConsoleInThread, scripted

from drivetrain.console.access import access_file
from drivetrain.console.handlers import events
from drivetrain.console.planning import processes
from drivetrain.console.planning.requests import ARCHIVE, UPLOAD, Outcome
from drivetrain.console.watching.cluster_watch import Watch


@pytest.fixture(scope="module", autouse=True)
def _passwords_cost_little() -> Iterator[None]:
    """Hash passwords in less than a millisecond; `test_console_access` tests the cost of real ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access_file, "SCRYPT_N", 2**4)
        yield


@pytest.fixture(scope="module", autouse=True)
def _looks_and_ticks_are_frequent() -> Iterator[None]:
    """Check the cluster five times as often as a real console, with as many checks between two ticks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Watch.__init__.__kwdefaults__, "every_s", 0.2)
        patch.setattr(events, "TICK_S", 1.0)
        yield


@pytest.fixture(scope="module")
def _planned_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Plan each request only once in a module, whose tests are about later steps; yields a directory for
    states."""
    known: dict[tuple[Any, ...], tuple[Outcome, bytes | None]] = {}
    real = processes.run

    async def run(program: str, asked: Any, directory: Path, *given: Any, **named: Any) -> Outcome:
        upload, archive = directory / UPLOAD, directory / ARCHIVE
        code = getattr(asked, "directory", "")  # of this console
        request = msgspec.json.encode(asked).replace(str(code).encode(), b"")
        key = (program, request, upload.read_bytes() if upload.is_file() else b"")
        if key not in known:
            outcome = await real(program, asked, directory, *given, **named)
            known[key] = (outcome, archive.read_bytes() if archive.is_file() else None)
        outcome, packed = known[key]
        if packed is not None:
            archive.write_bytes(packed)
        return outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "run", run)
        yield tmp_path_factory.mktemp("planned")


@pytest.fixture
def place(_planned_once: Path) -> Path:
    """An empty directory for the states of an application, which is the same for all tests of a module."""
    shutil.rmtree(_planned_once)
    _planned_once.mkdir()
    return _planned_once


@pytest.fixture(scope="module")
def shared_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleInThread]:
    """A console that the tests of a module share; they change nothing that other tests look at."""
    with scripted.ScriptedCluster() as cluster:
        made = ConsoleInThread(tmp_path_factory.mktemp("console"), cluster, {})
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def console(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ConsoleInThread]:
    """A console; `@pytest.mark.parametrize("console", [{…}], indirect=True)` sets its configuration."""
    sets = dict(getattr(request, "param", {}))
    with scripted.ScriptedCluster() as cluster:
        made = ConsoleInThread(tmp_path, cluster, sets)
        try:
            yield made
        finally:
            made.close()
