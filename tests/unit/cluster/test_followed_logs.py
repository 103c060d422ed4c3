"""A worker that does not answer for a while costs a follower of its logs no line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from client_world import view_of

from drivetrain.actor.actor_errors import ActorFailedError, AskTimeoutError
from drivetrain.cluster.client.process_logs import LogReader
from drivetrain.cluster.messages.applications import ApplicationState, WorkerView
from drivetrain.cluster.messages.launching import LogChunk, ReadLog
from drivetrain.errors import UnavailableError
from drivetrain.simulator import Simulation, simulate


class Scripted:
    """A reference to a worker, which answers unless `silent` asks are left."""

    def __init__(self, logs: dict[str, bytes]) -> None:
        self.logs = logs
        self.silent = 0

    async def ask(self, message: ReadLog, reply: type[LogChunk], *, timeout_ms: int) -> LogChunk:
        if self.silent:
            self.silent -= 1
            raise AskTimeoutError("no reply in time")
        process = message.process or next(iter(self.logs), None)
        if process not in self.logs:
            raise ActorFailedError("no such log", where=None, failure_code="no-log")
        start = message.offset or 0
        data = self.logs[process][start:]
        return LogChunk(process, data, start + len(data), tuple(self.logs))


class World:
    """A client of a cluster with these workers, by name; the application is active until it is `over`."""

    def __init__(self, **workers: Scripted) -> None:
        self.views = [
            WorkerView(name, name, name, 1, 1, 0, worker=cast(Any, one)) for name, one in workers.items()
        ]
        self.is_over = False

    async def workers(self) -> list[WorkerView]:
        return self.views

    async def application(self, app: str) -> object:
        return view_of(app, state=ApplicationState.SUCCEEDED if self.is_over else ApplicationState.ACTIVE)

    async def follow(self, at_the_end: Callable[[], None], shown: list[bytes]) -> None:
        """Follow until the end, which comes with `at_the_end` when all has been read once."""
        view = view_of("wc-1", state=ApplicationState.ACTIVE)
        async for piece in LogReader(cast(Any, self)).follow(view, None, 100):
            if piece is not None:
                shown.append(piece.data)
            elif not self.is_over:
                self.is_over = True
                at_the_end()


@simulate(seeds=1)
async def test_what_was_written_last_is_shown_though_its_worker_was_silent(simulation: Simulation) -> None:
    worker, shown = Scripted({"executor-1": b"one\n"}), list[bytes]()

    def end() -> None:
        worker.logs["executor-1"] += b"two\n"
        worker.silent = 1

    await World(w1=worker).follow(end, shown)
    assert shown == [b"one\n", b"two\n"]


@simulate(seeds=1)
async def test_a_process_is_found_though_its_worker_was_silent_at_the_end(simulation: Simulation) -> None:
    first, second, shown = Scripted({"executor-1": b"one\n"}), Scripted({}), list[bytes]()

    def end() -> None:
        second.logs["executor-2"] = b"two\n"
        second.silent = 1

    await World(w1=first, w2=second).follow(end, shown)
    assert shown == [b"one\n", b"two\n"]


@simulate(seeds=1)
async def test_a_worker_that_stays_silent_is_named_and_the_others_are_read(simulation: Simulation) -> None:
    first, second = Scripted({"executor-1": b"one\n"}), Scripted({"executor-2": b"two\n"})
    shown: list[bytes] = []

    def end() -> None:
        first.logs["executor-1"] += b"three\n"
        second.silent = 1_000

    with pytest.raises(UnavailableError, match="w2"):
        await World(w1=first, w2=second).follow(end, shown)
    assert shown == [b"one\n", b"two\n", b"three\n"]


@simulate(seeds=1)
async def test_nobody_says_that_there_is_no_log_while_a_worker_is_silent(simulation: Simulation) -> None:
    worker = Scripted({"executor-1": b"one\n"})
    view = view_of("wc-1", state=ApplicationState.SUCCEEDED)
    reader = LogReader(cast(Any, World(w1=worker)))
    worker.silent = 1
    with pytest.raises(UnavailableError, match="w1"):
        await reader.read(view, None, 100)
    assert [piece.data for piece in await reader.read(view, None, 100)] == [b"one\n"]
