"""SIGKILL of a process that publishes to two tables, while somebody reads both."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import publishing_process
import pytest

KILLS = 12
BOTH = "select (select count(*) from ledger), coalesce((select max(entries) from balances), 0)"


@pytest.mark.nightly("the unit tests of sinks die at every step; other tests use this server")
@pytest.mark.parametrize(
    "database",
    [
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.nightly("SQLite, by the same steps")),
        pytest.param("mariadb", marks=pytest.mark.nightly("SQLite, by the same steps")),
    ],
    indirect=True,
)
def test_killed_again_and_again_every_row_is_there_once_and_readers_see_whole_transactions(
    database: Any, tmp_path: Path
) -> None:
    place = database.sink("ledger")
    address = place.path if database.kind == "sqlite" else place.url
    state = tmp_path / "killed"
    state.mkdir()
    seen: list[tuple[int, int]] = []
    torn: list[tuple[int, int]] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(0.005):
            try:
                entries = database.run(BOTH)[0]
            except Exception:  # noqa: BLE001 - the tables are not there yet
                continue
            seen.append(entries)
            if entries[0] != entries[1]:
                torn.append(entries)

    reader = threading.Thread(target=read)
    reader.start()
    moments = random.Random(6)
    parent = Parent(state, address)
    try:
        for _ in range(KILLS):
            killed = parent.start()
            for _ in range(moments.randint(0, 3)):
                parent.line()
            time.sleep(moments.uniform(0, 0.05))
            os.kill(killed, signal.SIGKILL)
        parent.start()
        last = int(parent.line())
    finally:
        parent.end()
        ended.set()
        reader.join(60)
    assert torn == []
    assert len(set(seen)) > KILLS
    count, distinct, low, high = database.run(
        "select count(*), count(distinct id), min(id), max(id) from ledger"
    )[0]
    assert count == distinct == high + 1
    assert low == 0
    assert count % publishing_process.ROWS == 0
    assert count >= (last + 1) * publishing_process.ROWS
    assert database.run(BOTH) == [(count, count)]


class Parent:
    """The process that forks those that are killed."""

    def __init__(self, state: Path, address: str, program: str = publishing_process.__file__) -> None:
        command = [sys.executable, program, str(state), str(address)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def start(self) -> int:
        """Have a process made, and wait until it is about to prepare; its number."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        while not (line := self.line()).startswith("process "):
            pass
        assert self.line() == "ready"
        return int(line.removeprefix("process "))

    def line(self) -> str:
        """The next line that one of them says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return line.rstrip()

    def end(self) -> None:
        """Kill all of them."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
