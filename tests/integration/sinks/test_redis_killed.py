"""SIGKILL of processes that publish to a stream of Redis, one after the other."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis_process
from redis_batches import PASSWORD, entries, opened
from test_sql_killed import Parent

from redis_server import RedisServer


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path / "redis").start()
    monkeypatch.setenv(PASSWORD, made.password)
    yield made
    made.close()


@pytest.mark.nightly("the unit tests of sinks die at every step; other tests use this server")
@pytest.mark.parametrize(
    "kills",
    [4, pytest.param(40, marks=pytest.mark.nightly("the same with fewer deaths"))],
    ids=["few", "many"],
)
def test_killed_again_and_again_every_row_is_there_once(
    server: RedisServer, tmp_path: Path, kills: int
) -> None:
    state = tmp_path / "state"
    moments = random.Random(7)
    parent = Parent(state, str(server.port), redis_process.__file__)
    try:
        for _ in range(kills):
            killed = parent.start()
            for _ in range(moments.randint(0, 3)):
                parent.line()
            time.sleep(moments.uniform(0, 0.05))  # a random moment to die at
            os.kill(killed, signal.SIGKILL)
        parent.start()
        parent.line()
    finally:
        parent.end()
    writer = opened(server, state, stream="events")
    for batch in writer.prepared():
        writer.commit(batch)
    last = writer._opened().published
    assert last >= kills // 4
    assert entries(server) == list(range((last + 1) * redis_process.ROWS))
