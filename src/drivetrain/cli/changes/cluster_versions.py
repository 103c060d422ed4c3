"""Versions of an application in a cluster, for the commands that show, compare and change them.

Called by `cli.changes.update`, `cli.changes.rollback`, `cli.changes.versions`, `cli.inspection.plan` and
`cli.changes.graph_edit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drivetrain.cli.changes.comparison import Comparison, compared_versions, require_known
from drivetrain.cli.cluster_access import connected_by
from drivetrain.code.application_file import load_same
from drivetrain.config import Config
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.scaling_state import CompletedScaling
from drivetrain.core.plan.configured import configured_plan
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import UnavailableError
from drivetrain.runtime.planned_version import planned_version
from drivetrain.runtime.sink_places import refuse_shared_places
from drivetrain.runtime.version_history import VersionSummary, known_among

if TYPE_CHECKING:
    from drivetrain.api.application import Application
    from drivetrain.cluster.client import BlockingClient
    from drivetrain.cluster.client.graph_edit_requests import GraphEditRequest
    from drivetrain.cluster.client.version_requests import GraphHistory
    from drivetrain.cluster.messages.applications import ApplicationSpec


@dataclass(frozen=True)
class ClusterApplication:
    """The application `app_id` of a cluster; see `changing.ChangingApplication`."""

    client: BlockingClient
    app_id: str

    def state(self) -> ChangeState:
        """The state of the change."""
        return self.client.change_state(self.app_id)

    def give_up(self, number: int) -> None:
        """Cancel the change to a version."""
        self.client.give_up_change(self.app_id, number)

    def wait_ended(self, number: int, wait_s: float) -> ChangeState:
        """The state when the trial of a version has ended, or after so many seconds."""
        return self.client.wait_change(self.app_id, number, f"{int(wait_s * 1000)} ms")


@dataclass(frozen=True)
class ClusterChange(ClusterApplication):
    """A change of an application of a cluster; `begin` has it begin. See `changing.ChangeTarget`.

    `number` is the version to go back to, 0 of an update.
    """

    begin: Callable[[], ChangeState]
    number: int = 0

    def change(self) -> int:
        """Change it; returns the number of the version."""
        return self.begin().number


def updated_in_cluster(
    client: BlockingClient,
    app: str,
    file: str,
    given: Mapping[str, str],
    config: Config,
    options: ChangeOptions = NO_OPTIONS,
) -> tuple[ClusterChange, Comparison]:
    """The change of an application to the graph in a file; `given` are further settings.

    Raises what loading and planning raise, UserError for another application, UnknownApplicationError.
    """
    from drivetrain.cluster.client import prepare_submission

    view, history = client.application(app), client.versions(app)
    spec, old = view.spec, history.record
    application = _loaded(file, given, spec, history)
    sets = {**spec.config, **spec.settings, **given}
    submission = prepare_submission(file, sets, config, name=spec.name)
    plan = configured_plan(application.graph(), Config.load(None, {}, spec.config))
    new = planned_version(refuse_shared_places(plan))

    def begin() -> ChangeState:
        return client.begin_update(view.app_id, submission, old.number, options)

    return ClusterChange(client, view.app_id, begin), _compared(view.app_id, history, new, options)


def edited_in_cluster(
    client: BlockingClient, app: str, edit: GraphEditRequest, options: ChangeOptions = NO_OPTIONS
) -> tuple[ClusterChange, Comparison]:
    """The change of an application by an edit of its graph in force, which an executor makes.

    Raises what is wrong with the edit, and UnknownApplicationError.
    """
    app_id, history = client.application(app).app_id, client.versions(app)
    old = history.record
    new = client.edited(app_id, edit, old.number)

    def begin() -> ChangeState:
        return client.begin_edit(app_id, edit, old.number, options)

    return ClusterChange(client, app_id, begin), _compared(app_id, history, new, options)


def rolled_back_in_cluster(
    client: BlockingClient, app: str, number: int | None, options: ChangeOptions = NO_OPTIONS
) -> tuple[ClusterChange, Comparison, int]:
    """The change of an application back to a version, by default the one before; and which one that is."""
    app_id, history = client.application(app).app_id, client.versions(app)
    old = history.record
    wanted = number or old.follows
    require_known(wanted, list(history.versions), app_id)

    def begin() -> ChangeState:
        return client.begin_rollback(app_id, wanted, old.number, options)

    change = ClusterChange(client, app_id, begin, wanted)
    return change, _compared(app_id, history, history.versions[wanted].record, options), old.follows


def known_in_cluster(client: BlockingClient, app: str) -> tuple[list[VersionSummary], list[CompletedScaling]]:
    """The versions of an application, the oldest first, and the scalings of its fragments."""
    history = client.versions(app)
    stored = {number: (found.record, found.ending) for number, found in history.versions.items()}
    known = known_among(stored, history.in_force, is_running=lambda: True)
    return [_with_clock(client, app, one) for one in known], list(history.scalings)


def _with_clock(client: BlockingClient, app: str, one: VersionSummary) -> VersionSummary:
    """A version with the progress of its handover, if it is the one in force."""
    if not one.is_in_force or one.record.at_ms is None:
        return one
    try:
        return replace(one, handing_over=client.change_state(app).handing_over)
    except UnavailableError:
        return one  # another application master is starting


def application_in_cluster(app: str, file: str, given: Mapping[str, str], config: Config) -> Application:
    """Load the next version of an application from a file, with the settings of the one that runs."""
    with connected_by(config) as client:
        spec, history = client.application(app).spec, client.versions(app)
    return _loaded(file, given, spec, history)


def _loaded(file: str, given: Mapping[str, str], spec: ApplicationSpec, history: GraphHistory) -> Application:
    more = {**spec.config, **spec.settings}
    return load_same(file, given, history.application, history.settings, more)


def compared_in_cluster(
    app: str, plan: Plan, config: Config, options: ChangeOptions = NO_OPTIONS
) -> Comparison:
    """Compare a plan with the version in force of an application."""
    with connected_by(config) as client:
        new = planned_version(plan)
        return _compared(client.application(app).app_id, client.versions(app), new, options)


def _compared(
    app_id: str, history: GraphHistory, new: GraphVersion, options: ChangeOptions = NO_OPTIONS
) -> Comparison:
    has_checkpoints = history.has_checkpoints
    return compared_versions(app_id, history.record, new, options, has_checkpoints=has_checkpoints)
