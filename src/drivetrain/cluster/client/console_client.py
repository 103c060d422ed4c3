"""The client of a cluster that is reached through its console: the methods of `client.Client`, by HTTP.

Problem: commands and programs must work in the same way with a console and without one.

Design: the console asks the cluster with its own client, so this module only adds repetition, and `waiting`
the waits. Both consist of short calls, so that no proxy ends them, and the console may be restarted in
between.

Invariants: those of `client.Client`.

Called by `open_client`, which makes it.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from drivetrain.actor import Message
from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.api.durations import DEFAULT_TIMEOUT, milliseconds
from drivetrain.api.moments import moment_ms
from drivetrain.cluster.client import console_calls as calls
from drivetrain.cluster.client.attachment import (
    Attachment,
    Event,
    FollowAppMaster,
    LeaderUnreachable,
    ReportEnd,
    ShowNotice,
    ShowStatus,
    StatusReceived,
    ViewReceived,
)
from drivetrain.cluster.client.console_connection import ConsoleConnection, ConsoleUnreachableError
from drivetrain.cluster.client.graph_edit_requests import GraphEditRequest
from drivetrain.cluster.client.process_logs import Piece
from drivetrain.cluster.client.refusals import require_name, require_small
from drivetrain.cluster.client.scaling_requests import ended_scaling
from drivetrain.cluster.client.submission import Submission
from drivetrain.cluster.client.version_requests import GraphHistory, ended_trial
from drivetrain.cluster.client.waiting import POLL_S, WaitingClient
from drivetrain.cluster.code_transfer import CodeMissingError, upload
from drivetrain.cluster.messages.applications import (
    ApplicationSummary,
    ApplicationView,
    MasterView,
    WorkerView,
)
from drivetrain.cluster.messages.changing import ProposedCode
from drivetrain.cluster.messages.code import PutCode
from drivetrain.cluster.messages.following import JobStatus, ThreadStacks
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.scaling_state import PlannedScaling, ScalingState
from drivetrain.core.job.history import History
from drivetrain.runtime.objects.locations import is_in_object_store
from drivetrain.runtime.running_config import ChangedValue

R = TypeVar("R", bound=Message)


class ConsoleClient(WaitingClient):
    """A client that asks through `line`; `timeout_ms` is how long it repeats a submission."""

    away = (*WaitingClient.away, ConsoleUnreachableError)

    def __init__(self, line: ConsoleConnection, timeout_ms: int) -> None:
        self.line: Final = line
        self._timeout_ms: Final = timeout_ms

    async def close(self) -> None:
        """Disconnect; applications keep running."""

    # ---- applications

    async def submit(self, submission: Submission, *, submission_id: str | None = None) -> str:
        """Hand an application to the cluster; see `Client.submit`."""
        spec = submission.spec
        require_name(spec.name)
        require_small(spec)
        end_ms = monotonic_ms() + self._timeout_ms
        request = calls.SubmitArguments(submission_id or uuid.uuid4().hex, spec)
        await upload(self._put, submission.archive)
        while True:
            try:
                return await self.line.call(calls.SUBMIT, request)
            except CodeMissingError:  # a new leader has not received it
                if monotonic_ms() >= end_ms:
                    raise
                await upload(self._put, submission.archive)

    async def applications(self) -> tuple[ApplicationSummary, ...]:
        """All applications, newest first; see `Client.applications`."""
        return await self.line.call(calls.APPLICATIONS, calls.NoArguments())

    async def application(self, app: str) -> ApplicationView:
        """One application; see `Client.application`."""
        return await self.line.call(calls.APPLICATION, calls.ApplicationArguments(app))

    async def status(self, app: str) -> tuple[ApplicationView, JobStatus | None]:
        """One application and its status; see `Client.status`."""
        return await self.line.call(calls.STATUS, calls.ApplicationArguments(app))

    async def history(self, view: ApplicationView) -> History:
        """The last quarter of an hour of an application; see `Client.history`."""
        return await self.line.call(calls.HISTORY, calls.ApplicationArguments(view.app_id))

    async def threads(self, app: str, executor: str | None = None) -> ThreadStacks:
        """The stacks of an executor's threads; see `Client.threads`."""
        return await self.line.call(calls.THREADS, calls.ThreadsArguments(app, executor))

    async def kill(self, app: str) -> ApplicationView:
        """End an application; see `Client.kill`."""
        return await self.line.call(calls.KILL, calls.ApplicationArguments(app))

    async def restart(self, app: str) -> ApplicationView:
        """Start an application again; see `Client.restart`."""
        return await self.line.call(calls.RESTART, calls.ApplicationArguments(app))

    async def replay(self, app: str, replay_from: str | int | datetime) -> ApplicationView:
        """Process messages again from a timestamp on; see `Client.replay`."""
        return await self.line.call(
            calls.REPLAY, calls.ReplayArguments(app, moment_ms(replay_from, "replay_from"))
        )

    async def savepoint(
        self, app: str, place: str | os.PathLike[str] | None, timeout: str = "1 min"
    ) -> Path | str:
        """Have an application write a savepoint; returns where.

        The place is that of a directory in the cluster; None: below the application's state directory there.
        """
        milliseconds(timeout, "timeout")
        wanted = calls.SavepointArguments(app, None if place is None else str(place), timeout)
        written = await self.line.call(calls.SAVEPOINT, wanted)
        return written if is_in_object_store(written) else Path(written)

    # ---- changes

    async def update(
        self, app: str, submission: Submission, against: int = 0, options: ChangeOptions = NO_OPTIONS
    ) -> ChangeState:
        """Change an application while it runs; see `VersionsClient.update`."""
        await upload(self._put, submission.archive)
        spec = submission.spec
        code = ProposedCode(spec.code, spec.file, spec.target)
        return await self.line.call(calls.CHANGE, calls.ChangeArguments(app, against, code, 0, options))

    async def roll_back(
        self, app: str, number: int, against: int = 0, options: ChangeOptions = NO_OPTIONS
    ) -> ChangeState:
        """Change an application back to an earlier version; see `VersionsClient.roll_back`."""
        return await self.line.call(calls.CHANGE, calls.ChangeArguments(app, against, None, number, options))

    async def edit(
        self, app: str, edit: GraphEditRequest, against: int = 0, options: ChangeOptions = NO_OPTIONS
    ) -> ChangeState:
        """Edit the graph in force of an application; see `VersionsClient.edit`."""
        if edit.archive is not None:
            await upload(self._put, edit.archive)
        wanted = calls.ChangeArguments(app, against, edit.code, 0, options, edit.edit)
        return await self.line.call(calls.CHANGE, wanted)

    async def edited(self, app: str, edit: GraphEditRequest, against: int = 0) -> GraphVersion:
        """The version that an edit would make; see `VersionsClient.edited`."""
        if edit.archive is not None:
            await upload(self._put, edit.archive)
        return await self.line.call(calls.EDITED, calls.EditArguments(app, against, edit.code, edit.edit))

    async def give_up_change(self, app: str, number: int) -> ChangeState:
        """Have an application go back from a version on trial; see `VersionsClient.give_up_change`."""
        return await self.line.call(calls.GIVE_UP_CHANGE, calls.GiveUpArguments(app, number))

    async def change_state(self, app: str) -> ChangeState:
        """How an application changes; see `VersionsClient.change_state`."""
        return await self.line.call(calls.CHANGE_STATE, calls.ApplicationArguments(app))

    async def wait_change(self, app: str, number: int, timeout: str = DEFAULT_TIMEOUT) -> ChangeState:
        """Wait until the trial of a version has ended; see `VersionsClient.wait_change`."""
        return await ended_trial(lambda: self.change_state(app), number, timeout, time.monotonic)

    async def scale(self, app: str, fragment: str, partitions: int) -> ScalingState:
        """Begin to divide the state of a fragment again; see `Client.scale`."""
        return await self.line.call(calls.SCALE, calls.ScaleArguments(app, fragment, partitions))

    async def plan_scaling(self, app: str, fragment: str, partitions: int) -> PlannedScaling:
        """What `scale` would do; see `Client.plan_scaling`."""
        return await self.line.call(calls.PLAN_SCALING, calls.ScaleArguments(app, fragment, partitions))

    async def wait_scaled(
        self, app: str, begun: ScalingState, timeout: str = DEFAULT_TIMEOUT
    ) -> ScalingState:
        """Wait until a scaling has ended; see `Client.wait_scaled`."""
        return await ended_scaling(lambda: self.change_state(app), begun, timeout, time.monotonic)

    async def configure(
        self, app: str, values: Mapping[str, str], restore: Iterable[str] = ()
    ) -> tuple[ChangedValue, ...]:
        """Change configuration keys of an application; see `VersionsClient.configure`."""
        return await self.line.call(
            calls.CONFIGURE, calls.ConfigureArguments(app, dict(values), tuple(restore))
        )

    async def versions(self, app: str) -> GraphHistory:
        """The versions of an application's graph; see `VersionsClient.versions`."""
        return await self.line.call(calls.VERSIONS, calls.ApplicationArguments(app))

    # ---- the cluster

    async def workers(self) -> tuple[WorkerView, ...]:
        """All registered workers, by name."""
        return await self.line.call(calls.WORKERS, calls.NoArguments())

    async def masters(self) -> tuple[MasterView, ...]:
        """All masters on the list; see `Client.masters`."""
        return await self.line.call(calls.MASTERS, calls.NoArguments())

    # ---- watching

    async def follow(
        self, app: str, *, tick: str = "200 ms"
    ) -> AsyncIterator[ShowStatus | ShowNotice | ReportEnd | None]:
        """Yield the events of an application from now on; see `Client.follow`."""
        view = await self.application(app)
        attachment, tick_s = Attachment(view.app_id), milliseconds(tick, "tick") / 1000
        events: list[Event] = [ViewReceived(view, None)]
        while True:
            for event in events:
                for effect in attachment.step(event, monotonic_ms()):
                    if not isinstance(effect, FollowAppMaster):
                        yield effect
                if attachment.has_ended:
                    return
            asked = asyncio.ensure_future(self._looked(view.app_id))
            try:
                while not (await asyncio.wait({asked}, timeout=tick_s))[0]:
                    yield None
                events = asked.result()
            finally:
                asked.cancel()

    async def _looked(self, app_id: str) -> list[Event]:
        await asyncio.sleep(POLL_S)
        try:
            view, status = await self.status(app_id)
        except self.away:
            return [LeaderUnreachable()]
        seen = ViewReceived(view, None)
        return [seen] if status is None or view.state.is_over else [StatusReceived(status), seen]

    # ---- logs

    async def logs(
        self, app: str, process: str | None = None, *, max_bytes: int = 64 * 1024, offset: int | None = None
    ) -> list[Piece]:
        """The ends of the logs of an application's processes; see `Client.logs`."""
        return await self.line.call(calls.LOGS, calls.LogsArguments(app, process, max_bytes, offset))

    async def follow_logs(
        self, app: str, process: str | None = None, *, max_bytes: int = 64 * 1024
    ) -> AsyncIterator[Piece | None]:
        """Yield the ends of the logs, then new output; see `Client.follow_logs`."""
        app_id = (await self.application(app)).app_id
        read: dict[tuple[str, str], int] = {}
        is_first, was_over = True, False
        while True:
            was_quiet = True
            is_over = (await self.application(app_id)).state.is_over
            for end in await self.logs(app_id, process, max_bytes=max_bytes):
                known = (end.process, end.worker)
                at = read.setdefault(known, end.next_offset - len(end.data) if is_first else 0)
                while at < end.next_offset:
                    more = await self.logs(app_id, end.process, max_bytes=max_bytes, offset=at)
                    pieces = [piece for piece in more if piece.worker == end.worker]
                    if not pieces:
                        break
                    at, was_quiet = pieces[0].next_offset, False
                    yield pieces[0]
                read[known] = at
            is_first = False
            if is_over and was_over and was_quiet:
                return
            was_over = is_over
            if was_quiet:
                yield None
                await asyncio.sleep(POLL_S)

    # ---- inside

    async def _clock_reached(self, view: ApplicationView, wanted_ms: int, left_ms: int) -> int | None:
        most_ms = min(left_ms, calls.MOST_CLOCK_MS)
        return await self.line.call(calls.CLOCK, calls.ClockArguments(view.app_id, wanted_ms, most_ms))

    async def _put(self, message: Message, reply: type[R]) -> R:
        assert isinstance(message, PutCode)
        part = calls.UploadArguments(message.sha256, message.offset, message.size_bytes, message.data)
        answer = await self.line.call(calls.PUT_CODE, part)
        assert isinstance(answer, reply)
        return answer
