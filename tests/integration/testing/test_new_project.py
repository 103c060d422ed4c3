"""What `drivetrain init` makes works: its own test passes, and `run --watch` follows its changes."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.projects.init import make_project
from drivetrain.testing.pytest_plugin import drivetrain_config, start_run

__all__ = ["drivetrain_config", "start_run"]

PATIENCE_S = 300.0


@pytest.mark.usefixtures("spark")
def test_the_test_of_a_new_project_passes_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_run: Any
) -> None:
    folder = make_project("corner_shop", tmp_path)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    tests = runpy.run_path(str(folder / "test_corner_shop.py"))
    [test] = [known for name, known in tests.items() if name.startswith("test_")]
    test(start_run)
    assert not (folder / "hourly").exists()
    assert not (folder / ".drivetrain").exists()


@pytest.mark.nightly("the same test, above; the unit tests of the plugin")
def test_the_test_of_a_new_project_passes(tmp_path: Path) -> None:
    folder = make_project("shop", tmp_path)
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "1 passed" in tested.stdout
    assert not (folder / "hourly").exists()
    assert not (folder / ".drivetrain").exists()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes], Path]]:
    folder = make_project("shop", tmp_path)
    source = (folder / "shop.py").read_text()
    (folder / "shop.py").write_text(source.replace('on_bad_record="dead_letter"', "watch=True"))
    told = tmp_path / "told"
    with told.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "drivetrain.cli", "run", "shop.py", "--watch"],
            cwd=folder,
            stdout=output,
            stderr=output,
        )
    yield folder, process, told
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def wait_for(what: Callable[[], bool], told: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, told.read_text()
        time.sleep(0.2)


def results(folder: Path) -> list[str]:
    return sorted(line for f in (folder / "hourly").glob("*.csv") for line in f.read_text().splitlines()[1:])


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    other = file.with_suffix(".new")
    other.write_text(text.replace(old, new))
    os.replace(other, file)


@pytest.mark.nightly("test_run_watch; runs that go on keep their state in many others")
def test_a_watched_application_follows_changes_that_load_and_keeps_its_state(
    watched: tuple[Path, subprocess.Popen[bytes], Path],
) -> None:
    folder, process, told = watched
    wait_for(lambda: len(results(folder)) == 4, told)
    replace(folder / "shop.py", "agg.count()", "agg.cuont()")
    wait_for(lambda: "the running application continues" in told.read_text(), told)
    assert "cuont" in told.read_text()
    replace(folder / "shop.py", "agg.cuont()", "agg.count()")
    wait_for(lambda: told.read_text().count("restarting after a change of shop.py") == 1, told)
    orders = folder / "orders"
    (orders / ".more").write_text('{"at": "2026-01-02T09:05:00Z", "item": "ice", "amount": 9.0}\n')
    (orders / ".more").rename(orders / "more.jsonl")
    # The coffee of 12:30 was state of the first process: the order of the next day fires its window.
    wait_for(lambda: len(results(folder)) == 5, told)
    assert [line for line in results(folder) if "coffee" in line and "T12:" in line.replace(" ", "T")]
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
