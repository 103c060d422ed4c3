"""The client of a cluster: submits applications, watches, ends and restarts them.

Problem: a user's command must survive what the cluster survives: a new leader, a new application master, lost
answers. And it must end: every wait has a timeout and an error that names what is missing.

Design: requests go to the current leader (`leader_connection`), and may arrive twice: a submission has its
own id, and before the client repeats `kill` or `restart` it checks whether they have happened. `follow`
combines the registry's view and the application master's status (`attachment`). The client stores nothing, so
it may end or be killed at any time.

Invariants:
1. A submission is accepted at most once, however often it is sent.
2. Every method ends within its timeout plus one attempt's, except `follow`, which ends with its application.

Called by the commands, through `blocking` by programs without an event loop, and by programs with one.
Source: Flink's JobClientActor (attached: watches the job manager, looks for the next); Gearpump's
ClientContext.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from drivetrain.actor import ActorFailedError, ActorSystem, Message
from drivetrain.api.durations import milliseconds
from drivetrain.api.moments import moment_ms
from drivetrain.cluster.client.app_master_requests import (
    ask_clock,
    ask_history,
    ask_savepoint,
    ask_status,
    ask_threads,
)
from drivetrain.cluster.client.attachment import (
    Attachment,
    Event,
    FollowAppMaster,
    LeaderUnreachable,
    ReportEnd,
    ShowNotice,
    ShowStatus,
    ViewReceived,
)
from drivetrain.cluster.client.follower import Follower, StartFollowing
from drivetrain.cluster.client.leader_connection import LeaderConnection
from drivetrain.cluster.client.listing import all_applications, all_workers
from drivetrain.cluster.client.process_logs import LogReader, Piece
from drivetrain.cluster.client.refusals import (
    error_of_answer,
    no_savepoint_of,
    require_name,
    require_small,
)
from drivetrain.cluster.client.scaling_requests import ScalingClient
from drivetrain.cluster.client.submission import Submission, own_savepoint_place
from drivetrain.cluster.client.waiting import POLL_S, WaitingClient
from drivetrain.cluster.code_transfer import NO_CODE, upload
from drivetrain.cluster.leader import NoLeaderError, NoMasterError
from drivetrain.cluster.messages.applications import (
    Accepted,
    ApplicationSpec,
    ApplicationState,
    ApplicationSummary,
    ApplicationView,
    FoundApplication,
    GetApplication,
    GetMasters,
    Kill,
    Masters,
    MasterView,
    Restart,
    Submit,
    WorkerView,
)
from drivetrain.cluster.messages.following import JobStatus, ThreadStacks
from drivetrain.core.job.history import History
from drivetrain.runtime.objects.locations import is_in_object_store

R = TypeVar("R", bound=Message)

_CLOCK_MS: Final = 20_000
"""How long one application master may take to answer `WaitForClock`: it may be replaced meanwhile."""
_LOOK_MS: Final = 3_000
"""How long the leader may be missing before attached clients show it."""


class Client(ScalingClient, WaitingClient):
    """A client of the cluster of `masters`, HOST:PORT each; made by `open_client`."""

    def __init__(self, system: ActorSystem, masters: Sequence[str], timeout_ms: int) -> None:
        super().__init__(system, LeaderConnection(system, masters, timeout_ms))
        self._logs: Final = LogReader(self)

    async def close(self) -> None:
        """Disconnect; applications keep running."""
        await self.system.terminate()

    # ---- applications

    async def submit(self, submission: Submission, *, submission_id: str | None = None) -> str:
        """Hand an application to the cluster; returns its id once it is accepted, before it runs.

        A repeated call with the same `submission_id` is the same submission. Raises
        ApplicationNameError, ApplicationNameTakenError, SpecificationTooLargeError, and what every request
        may raise: NoLeaderError, NoMasterError, SecretRefusedError, MasterFailureError.
        """
        spec = submission.spec
        require_name(spec.name)
        require_small(spec)
        own_id = uuid.uuid4().hex if submission_id is None else submission_id
        end_s = self.system.loop.time() + self.line.timeout_ms / 1000
        await upload(self.line.ask, submission.archive)
        while True:
            try:
                return await self.accept(own_id, spec)
            except ActorFailedError:
                # A new leader has not received the code yet.
                if self.system.loop.time() >= end_s:
                    raise
                await upload(self.line.ask, submission.archive)

    async def accept(self, submission_id: str, spec: ApplicationSpec) -> str:
        """Submit an application whose code was sent; returns its id.

        Raises like `submit`, and ActorFailedError (`no-code`) when the leader does not have the code.
        """
        return (await self._ask(Submit(submission_id, spec), Accepted, spec.name)).app_id

    async def applications(self) -> tuple[ApplicationSummary, ...]:
        """All applications, over or not, newest first, in short."""
        return await all_applications(self._ask)

    async def application(self, app: str) -> ApplicationView:
        """The application of this id, or the live one (else the newest) of this name.

        Raises UnknownApplicationError.
        """
        return (await self._ask(GetApplication(app), FoundApplication, app)).application

    async def status(self, app: str) -> tuple[ApplicationView, JobStatus | None]:
        """The registry's view of an application, and the status from its application master.

        The status is the final one when it is over, None while no application master answers.
        """
        view = await self.application(app)
        return view, await self.job_status(view)

    async def job_status(self, view: ApplicationView) -> JobStatus | None:
        """Like `status`, for a view that came from the registry; needs no leader."""
        return await ask_status(view)

    async def history(self, view: ApplicationView) -> History:
        """The last 15 minutes of an application; empty when it is over, or no application master answers."""
        return await ask_history(view)

    async def threads(self, app: str, executor: str | None = None) -> ThreadStacks:
        """The current stacks of the threads of an application's executor (None: of any executor).

        Raises UnavailableError when no application master answers.
        """
        return await ask_threads(await self.application(app), executor)

    async def kill(self, app: str) -> ApplicationView:
        """End an application; returns once the registry has the end, while processes may still be ending.

        Raises UnknownApplicationError, AlreadyOverError.
        """
        before = await self.application(app)

        async def done() -> FoundApplication | None:
            view = await self.application(before.app_id)
            return FoundApplication(view) if view.state is ApplicationState.KILLED else None

        return (await self._ask(Kill(before.app_id), FoundApplication, app, done)).application

    async def restart(self, app: str) -> ApplicationView:
        """Start an application again under its id, with its state, whether it is over or runs.

        Raises UnknownApplicationError, ApplicationNameTakenError.
        """
        return await self._restart(app, None)

    async def replay(self, app: str, replay_from: str | int | datetime) -> ApplicationView:
        """Let an application process messages again from the timestamp `replay_from` on, even if it is over.

        It starts with empty state; published output stays. `replay_from` is ISO 8601 (UTC unless it has a
        zone), a datetime, or ms since the epoch. Raises `UserError` for anything else, and the errors of
        `restart`.
        """
        return await self._restart(app, moment_ms(replay_from, "replay_from"))

    async def _restart(self, app: str, replay_from_ms: int | None) -> ApplicationView:
        before = await self.application(app)

        async def done() -> FoundApplication | None:
            view = await self.application(before.app_id)
            is_begun = view.epoch > before.epoch or (
                view.state is ApplicationState.PENDING and before.state is not ApplicationState.PENDING
            )
            return FoundApplication(view) if is_begun else None

        request = Restart(before.app_id, replay_from_ms)
        return (await self._ask(request, FoundApplication, app, done)).application

    async def savepoint(
        self, app: str, place: str | os.PathLike[str] | None, timeout: str = "1 min"
    ) -> Path | str:
        """Have an application write a savepoint; returns its directory's absolute path, or its stored place.

        None means a place below the application's state directory, named by its id and the time.
        The application master writes it, so a path must be valid there. Raises
        ApplicationOverError for an application that is over, UnavailableError when no application master
        answers or no checkpoint is made in time, OutputError when the directory cannot be used.
        """
        timeout_ms = milliseconds(timeout, "timeout")
        view = await self.application(app)
        chosen = own_savepoint_place(view) if place is None else os.fspath(place)
        written = chosen if is_in_object_store(chosen) else Path(chosen).absolute()
        if view.state.is_over:
            raise no_savepoint_of(view, app)
        await ask_savepoint(view, str(written), timeout_ms)
        return written

    # ---- the cluster

    async def workers(self) -> tuple[WorkerView, ...]:
        """All registered workers, by name."""
        return await all_workers(self._ask)

    async def masters(self) -> tuple[MasterView, ...]:
        """All masters on the list, as the first one to answer knows them; needs no majority."""
        return (await self.line.ask_any(GetMasters(), Masters)).masters

    # ---- watching

    async def follow(
        self, app: str, *, tick: str = "200 ms"
    ) -> AsyncIterator[ShowStatus | ShowNotice | ReportEnd | None]:
        """Yield the events of an application from now on; the last is its `ReportEnd`.

        Yields None when nothing has happened for `tick`, so that the caller can do other things. Continues
        through changes of leader and application master. Raises UnknownApplicationError.
        """
        view = await self.application(app)
        events, tick_s = asyncio.Queue[Event](), milliseconds(tick, "tick") / 1000
        attachment = Attachment(view.app_id)
        follower = self.system.spawn(lambda: Follower(events.put_nowait))
        events.put_nowait(ViewReceived(view, self.line.leader))
        poller = asyncio.ensure_future(self._poll(view.app_id, events))
        try:
            while not attachment.has_ended:
                try:
                    event = await asyncio.wait_for(events.get(), tick_s)
                except TimeoutError:
                    yield None
                    continue
                for effect in attachment.step(event, int(self.system.loop.time() * 1000)):
                    if isinstance(effect, FollowAppMaster):
                        follower.tell(StartFollowing(effect.app_master))
                    else:
                        yield effect
        finally:
            poller.cancel()
            self.system.stop(follower)

    async def _poll(self, app_id: str, events: asyncio.Queue[Event]) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            try:
                found = await self.line.ask(GetApplication(app_id), FoundApplication, timeout_ms=_LOOK_MS)
            except (NoLeaderError, NoMasterError):
                events.put_nowait(LeaderUnreachable())
            except ActorFailedError:
                # The leader is still reading the registry; the next answer may have the application.
                continue
            else:
                events.put_nowait(ViewReceived(found.application, self.line.leader))

    # ---- logs

    async def logs(
        self, app: str, process: str | None = None, *, max_bytes: int = 64 * 1024, offset: int | None = None
    ) -> list[Piece]:
        """The ends of the logs of an application's processes, or of one of them, at most `max_bytes` each.

        With `offset`, the bytes that follow it. Raises UnknownApplicationError, NoLogError.
        """
        return await self._logs.read(await self.application(app), process, max_bytes, offset)

    async def follow_logs(
        self, app: str, process: str | None = None, *, max_bytes: int = 64 * 1024
    ) -> AsyncIterator[Piece | None]:
        """Yield the ends of the logs, then new output (None for none), until the application is over."""
        view = await self.application(app)
        async for piece in self._logs.follow(view, process, max_bytes):
            yield piece

    # ---- inside

    async def _clock_reached(self, view: ApplicationView, wanted_ms: int, left_ms: int) -> int | None:
        return None if view.app_master is None else await ask_clock(view, wanted_ms, min(left_ms, _CLOCK_MS))

    async def _ask(
        self,
        message: Message,
        reply: type[R],
        app: str = "",
        done: Callable[[], Awaitable[R | None]] | None = None,
    ) -> R:
        try:
            return await self.line.ask(message, reply, done=done)
        except ActorFailedError as error:
            if error.failure_code == NO_CODE:
                raise
            known: list[str] = []
            if error.failure_code == "unknown-application":
                known = [name for line in await self.applications() for name in (line.name, line.app_id)]
            raise error_of_answer(error, app, known) from error
