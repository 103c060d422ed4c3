"""Asks the executors of an application to compile a change before it takes effect.

Problem: the new code comes from a client by way of the masters. It must compile with the running queries,
which are spread over several executors, and any of these may die or lose a fragment meanwhile.

Design: this process fetches the archive, as a worker does for an application that it starts, and writes it
into the state directory, which all executors reach. The first executor builds the graph from it, in a
separate process, compares it with the version in force, and compiles the changed fragments that it runs;
every other executor that runs a changed fragment compiles that, too, and adds the schemas of its new channels
to the proposal; the last one then compiles the fragments that start, and those that wait for a restart: code
that fails again and again can be corrected, too. If one of them refuses, or is lost, the change is refused.

Invariants:

1. Every changed fragment that runs was compiled by the executor that runs it.
2. On failure it raises, and only the proposal's own files have been written.

Called by `application_changes`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from drivetrain.actor import AskError, SystemView
from drivetrain.cluster.app_master.app_master_messages import RunAction
from drivetrain.cluster.app_master.stream.paused_change import starting
from drivetrain.cluster.app_master.stream.stored_versions import CompiledChange, StoredVersions
from drivetrain.cluster.app_master.stream.stream_progress import VersionStatus
from drivetrain.cluster.code_transfer import fetch
from drivetrain.cluster.leader import LeaderSearch
from drivetrain.cluster.messages.changing import ChangeGraph, CheckVersion, VersionChecked
from drivetrain.cluster.messages.executing import PrepareFailed
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.config.catalog import application as keys
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.errors import UnavailableError, UserError

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.core.job.job import Job

Bring: TypeAlias = Callable[[str], Awaitable[bytes]]
"""Fetches an archive by its SHA-256."""
Tell: TypeAlias = Callable[[Exception | None, GraphVersion | None], None]

_FETCH_MS: Final = 60_000
_COMPILED: Final = (ExecutionState.RUNNING, ExecutionState.FINISHED)


class RefusedChangeError(UserError):
    """An executor has refused a change; `view` is its error."""

    def __init__(self, view: ErrorView) -> None:
        super().__init__(view.what, where=view.where, got=view.got, remedy=view.remedy)
        self.view: Final = view


class ChangeCompiler:
    """Has changes of the application of `owner` compiled, whose job is `job`; `bring` fetches archives."""

    def __init__(self, owner: ApplicationMaster, job: Job, stored: StoredVersions, bring: Bring) -> None:
        self._owner: Final = owner
        self._job: Final = job
        self._stored: Final = stored
        self._bring: Final = bring

    async def compiled(self, message: ChangeGraph) -> CompiledChange:
        """The change that a client asks for, compiled by all executors that it concerns.

        Raises RefusedChangeError, CodeMissingError, UnavailableError, and what writing raises.
        """
        id = self._new_id()
        try:
            return await self._checked(await self._request(id, message))
        except BaseException:
            await self._owner.context.blocking(self._stored.withdraw, id)
            raise

    def show(self, message: ChangeGraph, tell: Tell) -> None:
        """Have executors make the version that a client asks about, and send the client its record, or the
        error."""
        self._owner.context.pipe_to_self(
            self._made(message),
            lambda made: RunAction(partial(tell, None, made)),
            lambda error: RunAction(partial(tell, error, None)),
        )

    async def _made(self, message: ChangeGraph) -> GraphVersion:
        """The record of the version that a client asks about; nothing is compiled. Raises like `compiled`."""
        id, blocking = self._new_id(), self._owner.context.blocking
        try:
            await self._ask(self._running(), await self._request(id, message))
            return await blocking(self._stored.proposed_record, id)
        finally:
            await blocking(self._stored.withdraw, id)

    def _new_id(self) -> str:
        return f"{self._owner.context.system.rng.getrandbits(128):032x}"

    async def _request(self, id: str, message: ChangeGraph) -> CheckVersion:
        """The request to executors, once they can find the archive."""
        context = self._owner.context
        state_read = await context.blocking(self._stored.read_state)
        if message.code is not None:
            data = await self._bring(message.code.sha256)
            await context.blocking(self._stored.propose_archive, id, data)
        return CheckVersion(
            self._owner.setup.epoch,
            id,
            message.against or state_read.state.version,
            message.code,
            message.number,
            message.options,
            edit=message.edit,
            only_makes=message.only_makes,
        )

    def _running(self) -> str:
        """An executor that runs a fragment, or one that may, if all fragments wait for a restart; raises
        UnavailableError without any."""
        running = [str(e.executor) for e in self._job.executions if e.is_placed and e.executor is not None]
        if not running and any(e.attempt > 1 and not e.is_terminal for e in self._job.executions):
            running = [member.id for member in self._owner.pool.ready]
        if not running:
            raise UnavailableError("no fragment of the application runs now", remedy="try again")
        return min(running)

    async def _checked(self, request: CheckVersion) -> CompiledChange:
        last = self._running()
        first, asked = await self._ask(last, request), {last}
        while (missing := self._missing(first, asked)) is not None:
            last, other = missing, await self._ask(missing, request)
            asked.add(missing)
            self._require_same(first, other)
        waiting = self._waiting(first, request)
        if first.starts or waiting:
            with_rest = msgspec.structs.replace(request, has_starts=bool(first.starts), not_running=waiting)
            self._require_same(first, await self._ask(last, with_rest))
        change, history = await self._owner.context.blocking(self._stored.proposed, request.id)
        if (change.number, tuple(sorted(change.touched))) != (first.number, first.touched):
            raise UnavailableError("the application has changed meanwhile", remedy="try again")
        shown = VersionStatus(first.outputs, first.rules)
        made = (request.id, request.made_how, request.against)
        return CompiledChange(*made, change, shown, request.options.at, first.sizes, history=history)

    def _require_same(self, first: VersionChecked, other: VersionChecked) -> None:
        if (other.number, other.touched) != (first.number, first.touched):
            raise UnavailableError("executors disagree on the change", remedy="try again")

    def _missing(self, checked: VersionChecked, asked: set[str]) -> str | None:
        """An executor that runs a changed fragment and was not asked yet; None when all were."""
        for fragment in checked.touched:
            if fragment in checked.starts:
                continue
            execution = self._job.execution(fragment)
            executor = None if execution is None else execution.executor
            if execution is None or executor is None or execution.state not in _COMPILED:
                continue
            if executor not in asked and self._owner.pool.find(executor) is not None:
                return executor
        return None

    def _waiting(self, checked: VersionChecked, request: CheckVersion) -> tuple[str, ...]:
        """The changed fragments that wait for a restart; raises UnavailableError if one has not begun yet, or
        if the change needs those that wait."""
        executions = {f: self._job.execution(f) for f in checked.touched if f not in checked.starts}
        found = {f: e for f, e in executions.items() if e is None or e.state not in _COMPILED}
        needs_all = request.options.at is not None or request.options.history_ms is not None
        for fragment, execution in found.items():
            if execution is None or execution.attempt == 1 or needs_all:
                raise starting(fragment)
        return tuple(found)

    async def _ask(self, executor: str, request: CheckVersion) -> VersionChecked:
        member = self._owner.pool.find(executor)
        answer = None
        if member is not None and member.executor is not None:
            try:
                answer = await member.executor.ask(
                    request, timeout_ms=self._owner.config[keys.PREPARE_TIMEOUT]
                )
            except AskError as error:
                raise self._lost(executor, str(error)) from error
        if isinstance(answer, PrepareFailed):
            raise RefusedChangeError(answer.error)
        if not isinstance(answer, VersionChecked):
            raise self._lost(executor, "it is gone")
        return answer

    def _lost(self, executor: str, why: str) -> UnavailableError:
        return UnavailableError(
            "an executor has not compiled the change", where=executor, got=why, remedy="try again"
        )


class _IncomingArchive:
    """An archive in memory, as far as it has arrived."""

    def __init__(self) -> None:
        self.data: Final = bytearray()

    def arrived_bytes(self, _sha256: str) -> int:
        return len(self.data)

    def append(self, _sha256: str, data: bytes) -> None:
        self.data.extend(data)


def bring_from_masters(owner: ApplicationMaster) -> Bring:
    """Fetches archives from the masters of an application master."""

    async def bring(sha256: str) -> bytes:
        system: SystemView = owner.context.system
        arriving, search = _IncomingArchive(), LeaderSearch(system, owner.setup.masters)
        await search.round()
        await fetch(search, sha256, arriving, owner.context.blocking, timeout_ms=_FETCH_MS)
        return bytes(arriving.data)

    return bring
