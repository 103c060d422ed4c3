"""What a console may ask `drivetrain local`: one worker more, or one less; all else is refused."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from drivetrain.cli.clusters.local_cluster import LocalCluster
from drivetrain.cli.clusters.local_control import MOST_WORKERS, LocalControl
from drivetrain.console.local_workers import LocalWorkers
from drivetrain.console.problems import RequestError
from drivetrain.errors import UnavailableError
from drivetrain.runtime.control_socket import asked


@dataclass
class Started:
    """A worker as the cluster knows it; no process is started."""

    name: str
    log: Path = Path("a.log")


@dataclass
class Workers:
    """The workers of a cluster, and the threads that started or ended one."""

    directory: Path
    running: list[str] = field(default_factory=lambda: ["worker-1"])
    threads: set[threading.Thread] = field(default_factory=set)
    fails: bool = False

    def workers(self) -> tuple[str, ...]:
        return tuple(self.running)

    def add_worker(self) -> Started:
        self.threads.add(threading.current_thread())
        if self.fails:
            raise OSError("no more processes")
        self.running.append(f"worker-{len(self.running) + 1}")
        return Started(self.running[-1])

    def remove_worker(self, name: str) -> Started:
        self.threads.add(threading.current_thread())
        self.running.remove(name)
        return Started(name)


@pytest.fixture
def cluster(tmp_path: Path) -> Workers:
    return Workers(tmp_path)


@pytest.fixture
def worker_thread(cluster: Workers) -> Iterator[threading.Thread]:
    """A thread that works as the main thread of `drivetrain local` does."""
    ends = threading.Event()

    def work() -> None:
        with contextlib.closing(LocalControl(cast("LocalCluster", cluster))) as control:
            begun.set()
            while not ends.wait(0.01):
                control.work()

    begun = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    yield thread
    ends.set()
    thread.join()


def test_workers_are_added_and_removed_by_the_main_thread_alone(
    cluster: Workers, worker_thread: threading.Thread
) -> None:
    local = LocalWorkers(cluster.directory)
    assert asyncio.run(local.names()) == ("worker-1",)
    added = asyncio.run(local.add())
    assert (added.worker, added.workers, added.log) == ("worker-2", ("worker-1", "worker-2"), "a.log")
    assert asyncio.run(local.remove("worker-1")).workers == ("worker-2",)
    assert cluster.threads == {worker_thread}


@pytest.mark.usefixtures("worker_thread")
def test_what_cannot_be_is_refused_and_says_what_to_do(cluster: Workers) -> None:
    local = LocalWorkers(cluster.directory)
    for name in ("worker-9", "../console", "", "console\x00"):
        with pytest.raises(RequestError, match="no worker of this name") as refused:
            asyncio.run(local.remove(name))
        assert refused.value.remedy
    cluster.fails = True
    with pytest.raises(RequestError, match="no more processes"):
        asyncio.run(local.add())
    cluster.running[:] = [f"worker-{number}" for number in range(MOST_WORKERS)]
    with pytest.raises(RequestError, match="64 workers already"):
        asyncio.run(local.add())


@pytest.mark.usefixtures("worker_thread")
@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"ask": "end"}', b'{"ask": "list", "more": 1}', b"\xff\xfe", b"[" * 100_000]
)
def test_what_is_no_request_is_refused(cluster: Workers, line: bytes) -> None:
    assert b"cannot be read" in asked(cluster.directory, line, 30)
    assert asyncio.run(LocalWorkers(cluster.directory).names()) == ("worker-1",)


def test_a_command_that_has_ended_is_said_to_have(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="does not answer"):
        asyncio.run(LocalWorkers(tmp_path).names())
