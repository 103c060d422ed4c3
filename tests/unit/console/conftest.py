"""Consoles of scripted clusters: one for all tests of a module, or one for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from console_in_thread import ConsoleInThread, scripted

from drivetrain.console.access import access_file
from drivetrain.console.handlers import events
from drivetrain.console.watching.cluster_watch import Watch


@pytest.fixture(scope="module", autouse=True)
def _passwords_cost_little() -> Iterator[None]:
    """Hash passwords in less than a millisecond; `test_console_access` tests the cost of real ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access_file, "SCRYPT_N", 2**4)
        yield


@pytest.fixture(scope="module", autouse=True)
def _looks_and_ticks_are_frequent() -> Iterator[None]:
    """Look five times as often as a real console, with as many looks between two ticks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Watch.__init__.__kwdefaults__, "every_s", 0.2)
        patch.setattr(events, "TICK_S", 1.0)
        yield


@pytest.fixture(scope="module")
def shared_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleInThread]:
    """A console that the tests of a module share, which change nothing that others look at."""
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
