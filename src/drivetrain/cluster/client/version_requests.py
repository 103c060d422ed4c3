"""A client's requests to an application master about versions of the graph: change, roll back, list.

Problem: a change takes minutes, and the application master may die meanwhile. The user must learn how it
ended, and must not change the application twice.

Design: a request names the version that it was compared with, so one that comes twice is refused the second
time. Its answer comes when the version is in force, or is refused. The client then asks repeatedly how the
trial ends; whichever application master there is reads this from the state directory.

Called by `client`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from drivetrain.actor import ActorFailedError, ActorSystem, AskError, Message
from drivetrain.api.durations import DEFAULT_TIMEOUT, milliseconds
from drivetrain.cluster.client.client_errors import ApplicationOverError
from drivetrain.cluster.client.graph_edit_requests import GraphEditRequest
from drivetrain.cluster.client.leader_connection import LeaderConnection
from drivetrain.cluster.client.refusals import error_of_view
from drivetrain.cluster.client.submission import Submission
from drivetrain.cluster.code_transfer import upload
from drivetrain.cluster.messages.changing import (
    ChangeConfiguration,
    ChangeGraph,
    ChangeStatus,
    ConfigurationChanged,
    GetChange,
    GetVersions,
    GiveUpChange,
    GraphEdit,
    ProposedCode,
    ScaleFragment,
    StoredVersion,
    Versions,
)
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.scaling_state import CompletedScaling
from drivetrain.errors import UnavailableError, UserError

if TYPE_CHECKING:
    from drivetrain.cluster.messages.applications import ApplicationView
    from drivetrain.runtime.running_config import ChangedValue

R = TypeVar("R", bound=Message)

COMPILES_MS: Final = 900_000
"""How long a change may take until it is in force: executors load it and compile it."""
_POLL_S: Final = 0.5
_ANSWERS_MS: Final = 10_000


@dataclass(frozen=True)
class GraphHistory:
    """The versions of an application's graph, by number; `in_force` is the number of the one that runs.

    `application` and `settings` name its state; `has_checkpoints`: its sinks publish with checkpoints.
    `scalings` are those of its fragments that are done, the newest last.
    """

    versions: dict[int, StoredVersion]
    in_force: int
    application: str
    settings: dict[str, str]
    has_checkpoints: bool
    scalings: tuple[CompletedScaling, ...] = ()

    @property
    def record(self) -> GraphVersion:
        """The version in force; raises UserError when none is recorded."""
        found = self.versions.get(self.in_force)
        if found is None:
            raise UserError(
                f"no version of {self.application} is recorded", remedy="wait until the application runs"
            )
        return found.record


class VersionsClient(ABC):
    """The part of a client that changes applications while they run, and asks for their versions."""

    def __init__(self, system: ActorSystem, line: LeaderConnection) -> None:
        self.system: Final = system
        self.line: Final = line

    @abstractmethod
    async def application(self, app: str) -> ApplicationView:
        """The application of this id or name."""

    async def update(
        self, app: str, submission: Submission, against: int = 0, options: ChangeOptions = NO_OPTIONS
    ) -> ChangeState:
        """Change an application while it runs; returns once the new version is in force, and on trial.

        `against` is the version that the user has compared it with. Raises the refusal, UnavailableError when
        no application master answers, and what `submit` raises.
        """
        view = await self.application(app)
        await upload(self.line.ask, submission.archive)
        spec = submission.spec
        code = ProposedCode(spec.code, spec.file, spec.target)
        return await ask_change(view, ChangeGraph(against, code, options=options))

    async def roll_back(
        self, app: str, number: int, against: int = 0, options: ChangeOptions = NO_OPTIONS
    ) -> ChangeState:
        """Change an application back to an earlier version, like `update`."""
        request = ChangeGraph(against, None, number, options)
        return await ask_change(await self.application(app), request)

    async def edit(
        self, app: str, edit: GraphEditRequest, against: int = 0, options: ChangeOptions = NO_OPTIONS
    ) -> ChangeState:
        """Edit the graph in force of an application while it runs, like `update`."""
        if edit.archive is not None:
            await upload(self.line.ask, edit.archive)
        request = ChangeGraph(against, edit.code, 0, options, edit.edit)
        return await ask_change(await self.application(app), request)

    async def edited(self, app: str, edit: GraphEditRequest, against: int = 0) -> GraphVersion:
        """The version that an edit would make; nothing changes. Raises like `update`."""
        if edit.archive is not None:
            await upload(self.line.ask, edit.archive)
        return await ask_edited(await self.application(app), edit.edit, edit.code, against)

    async def give_up_change(self, app: str, number: int) -> ChangeState:
        """Have an application go back from a version on trial; raises like `update`."""
        return await ask_change(await self.application(app), GiveUpChange(number))

    async def change_state(self, app: str) -> ChangeState:
        """The version in force, and the change that is under way or was the last; raises like `update`."""
        return await change_of(await self.application(app))

    async def wait_change(self, app: str, number: int, timeout: str = DEFAULT_TIMEOUT) -> ChangeState:
        """Wait until the trial of a version has ended, or for `timeout`; returns the last state known.

        Continues through changes of application master. Raises UnavailableError when another change followed,
        and when no application master has answered.
        """
        return await ended_trial(lambda: self.change_state(app), number, timeout, self.system.loop.time)

    async def configure(
        self, app: str, values: Mapping[str, str], restore: Iterable[str] = ()
    ) -> tuple[ChangedValue, ...]:
        """Change configuration keys of an application from its next batch on; returns what is different now.

        `restore` are keys that get back the values with which it was submitted. Raises ConfigError for a
        key that cannot change, and then nothing has changed; UnavailableError when no application master
        answers.
        """
        request = ChangeConfiguration(dict(values), tuple(restore))
        view = await self.application(app)
        answer = await _ask(view, request, ConfigurationChanged, _ANSWERS_MS)
        if answer.error is not None:
            raise error_of_view(answer.error)
        return answer.changed

    async def versions(self, app: str) -> GraphHistory:
        """The versions of an application's graph; raises UnavailableError when no application master
        answers."""
        return await ask_versions(await self.application(app))


async def ask_change(view: ApplicationView, request: Message, timeout_ms: int = COMPILES_MS) -> ChangeState:
    """Ask an application to change; raises the refusal, and UnavailableError without an answer."""
    return (await ask_change_status(view, request, timeout_ms)).state


async def ask_change_status(
    view: ApplicationView, request: Message, timeout_ms: int = COMPILES_MS
) -> ChangeStatus:
    """The whole answer to a request to change; raises like `ask_change`."""
    stands = await _ask(view, request, ChangeStatus, timeout_ms)
    if stands.error is not None:
        raise error_of_view(stands.error)
    return stands


async def ask_edited(
    view: ApplicationView, edit: GraphEdit, code: ProposedCode | None, against: int
) -> GraphVersion:
    """Ask an application for the version that an edit would make; raises like `ask_change`."""
    request = ChangeGraph(against, code, edit=edit, only_makes=True)
    stands = await ask_change_status(view, request)
    if stands.made is None:
        raise UnavailableError(
            "the application master has not made the version",
            where=view.app_id,
            remedy="use one version of Drivetrain everywhere",
        )
    return stands.made


async def ask_versions(view: ApplicationView) -> GraphHistory:
    """The versions of an application, as its application master reads them; raises like `ask_change`."""
    found: dict[int, StoredVersion] = {}
    before: int | None = None
    scalings: tuple[CompletedScaling, ...] = ()
    while True:
        page = await _ask(view, GetVersions(before), Versions, _ANSWERS_MS)
        if page.error is not None:
            raise error_of_view(page.error)
        found |= {version.record.number: version for version in page.versions}
        before, scalings = page.before, scalings or page.scalings
        if before is None or not page.versions:
            ordered = dict(sorted(found.items()))
            shown = (page.in_force, page.application, page.settings, page.has_checkpoints)
            return GraphHistory(ordered, *shown, scalings)


async def change_of(view: ApplicationView) -> ChangeState:
    """The version in force, and the change that is under way or was the last; raises like `ask_change`."""
    return await ask_change(view, GetChange(), _ANSWERS_MS)


def has_ended(state: ChangeState, number: int) -> bool:
    """Whether the change to version `number` has ended; raises UnavailableError when another one followed
    it."""
    if state.number > number:
        raise UnavailableError(
            f"the change to version {number} has ended, and another one followed",
            remedy="drivetrain versions shows how it ended",
        )
    return state.number == number and state.outcome is not None


def over(view: ApplicationView) -> ApplicationOverError:
    """The error of changing an application that has ended, or of asking it for its versions."""
    return ApplicationOverError(
        "the application has ended, so it cannot change",
        where=view.app_id,
        got=view.state.value,
        remedy="`drivetrain versions` with --state-dir shows its versions; submit it with the new graph",
    )


async def _ask(view: ApplicationView, request: Message, reply: type[R], timeout_ms: int) -> R:
    if view.state.is_over:
        raise over(view)
    why = "it has none yet"
    if view.app_master is not None:
        try:
            return await view.app_master.ask(request, reply, timeout_ms=timeout_ms)
        except ActorFailedError as error:
            if error.failure_code != UnavailableError.code:
                raise
            why = error.what
        except AskError as error:
            why = str(error)
    is_change = isinstance(request, ChangeGraph | ScaleFragment)
    raise UnavailableError(
        "the application master has not answered",
        where=view.app_id,
        got=why,
        remedy="`drivetrain versions` shows whether it has changed" if is_change else "try again",
    )


async def ended_trial(
    ask: Callable[[], Awaitable[ChangeState]], number: int, timeout: str, now_s: Callable[[], float]
) -> ChangeState:
    """Ask for the state of a change until the trial of version `number` has ended; see `wait_change`."""
    end_s = now_s() + milliseconds(timeout, "timeout") / 1000
    while True:
        is_late = now_s() >= end_s
        try:
            state = await ask()
        except UnavailableError:
            if is_late:
                raise
        else:
            if has_ended(state, number) or is_late:
                return state
        await asyncio.sleep(_POLL_S)
