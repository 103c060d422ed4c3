"""Changes of an application while it runs: client and application master, application master and executors.

Versions and changed values of the configuration are files in the application's state directory, and decide:
messages only ask for a change, have executors look at the versions, and report what they have seen there.
Code comes as submitted code does: the client uploads an archive to the masters, and names it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from drivetrain.actor import Message
from drivetrain.cluster.messages.following import ErrorView, OutputView
from drivetrain.cluster.messages.numbers import Count, Figure, TimeMs
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.graph_version import GraphVersion, Made, SubscriptionRecord
from drivetrain.core.change.scaling_state import CompletedScaling, PlannedScaling, ScalingState
from drivetrain.core.plan.counts import CountRule
from drivetrain.runtime.graph_versions import Ending
from drivetrain.runtime.running_config import ChangedValue

ChangeId = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
"""Names a proposed version among the files of the state directory."""

Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class ProposedCode(msgspec.Struct, frozen=True, array_like=True):
    """The archive with the new version, the application's file in it, and the name in `file.py:name`.

    For an edit, the file has the function that makes a part of the graph.
    """

    sha256: Sha256
    file: str
    target: str | None = None


class GraphEdit(msgspec.Struct, frozen=True, array_like=True):
    """An edit of the graph in force at one processor; see `api.graph_edits`.

    "subscribe" keeps the stream of the processor for another application (`subscription`), and "unsubscribe"
    ends the subscriptions of the reader, or READER/SOURCE, that is in place of a processor.
    """

    how: Literal["attach", "replace", "remove", "subscribe", "unsubscribe"]
    processor: str
    subscription: SubscriptionRecord | None = None

    @property
    def needs_code(self) -> bool:
        """Whether a function of the user makes it."""
        return self.how in ("attach", "replace")


# -- client and application master ----------------------------------------------------------------------


class ChangeGraph(Message, frozen=True, tag="cluster.change-graph"):
    """Change the application to `code`, or back to version `number`; asked of an application master.

    `against` is the version that the user has compared it with (0: whichever is in force). With `edit`, the
    new version is the one in force with that edit, for which `code` has the function, if it needs one.
    Answered with `ChangeStatus` when every changed fragment has taken the version up, when reading former
    messages for it has begun, or when the change was refused. With `only_makes` nothing changes: the answer
    has the record that the version would have.
    """

    against: Count
    code: ProposedCode | None = None
    number: Count = 0
    options: ChangeOptions = NO_OPTIONS
    edit: GraphEdit | None = None
    only_makes: bool = False


class ScaleFragment(Message, frozen=True, tag="cluster.scale-fragment"):
    """Divide the state of a fragment, or of a processor's fragment, into other partitions; asked of an
    application master.

    Answered with `ChangeStatus` when the scaling has begun, or was refused. With `only_plans` nothing
    changes: the answer has the planned scaling.
    """

    fragment: str
    partitions: Figure
    only_plans: bool = False


class GiveUpChange(Message, frozen=True, tag="cluster.give-up-change"):
    """Go back from version `number`, which is on trial, or stop reading former messages for it; asked.

    Answered with `ChangeStatus`.
    """

    number: Count


class GetChange(Message, frozen=True, tag="cluster.get-change"):
    """Asks an application master for `ChangeStatus`."""


class ChangeStatus(Message, frozen=True, tag="cluster.change-stands"):
    """The version in force and the change that is under way or was the last; `error` refuses a request.

    `made` is the record that was asked for with `only_makes`, `planned` the scaling with `only_plans`.
    """

    state: ChangeState
    error: ErrorView | None = None
    made: GraphVersion | None = None
    planned: PlannedScaling | None = None


class GetVersions(Message, frozen=True, tag="cluster.get-versions"):
    """Asks an application master for `Versions`: the newest, or those before version `before`."""

    before: Count | None = None


class StoredVersion(msgspec.Struct, frozen=True, array_like=True):
    """A version that is kept, and how the change to it has ended."""

    record: GraphVersion
    ending: Ending | None = None


class Versions(Message, frozen=True, tag="cluster.versions"):
    """A page of the versions that are kept, the newest first; `before` requests the next, None on the last.

    `in_force` is the number of the version that runs (0: none yet), `settings` are those that name the
    application's state; `error` is why there is no page. The
    first page has the `scalings` that are done.
    """

    versions: tuple[StoredVersion, ...] = ()
    in_force: Count = 0
    before: Count | None = None
    application: str = ""
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    has_checkpoints: bool = False
    error: ErrorView | None = None
    scalings: tuple[CompletedScaling, ...] = ()


class ChangeConfiguration(Message, frozen=True, tag="cluster.change-configuration"):
    """Use these values of configuration keys from the next batch on; asked of an application master.

    Keys in `restored` get back the values with which the application was submitted. Answered with
    `ConfigurationChanged`.
    """

    values: dict[str, str]
    restored: tuple[str, ...] = ()


class ConfigurationChanged(Message, frozen=True, tag="cluster.configuration-changed"):
    """The keys whose values are different now; `error` refuses a request, and then nothing has changed."""

    changed: tuple[ChangedValue, ...] = ()
    error: ErrorView | None = None


# -- application master and executors -------------------------------------------------------------------


class CheckVersion(Message, frozen=True, tag="cluster.check-version"):
    """Compile the proposed version `id` for the fragments that run here, and check it; nothing changes.

    Without `number`, the state directory has the archive of the proposal, or, from another executor, its
    graph; `number` is the version to go back to, and `edit` makes the version of the one in force. `against`
    is the version in force. The executor that is asked with `has_starts` also compiles the fragments that
    start; by then all others have compiled their producers. It also compiles the fragments `not_running`,
    which wait for a restart, in place of the executors that will run them. With `only_makes` the version is
    made and compared with nothing. Asked; answered with `VersionChecked` or `PrepareFailed`.
    """

    epoch: Count
    id: ChangeId
    against: Count
    code: ProposedCode | None = None
    number: Count = 0
    options: ChangeOptions = NO_OPTIONS
    has_starts: bool = False
    not_running: tuple[str, ...] = ()
    edit: GraphEdit | None = None
    only_makes: bool = False

    @property
    def made_how(self) -> Made:
        """How the version comes into force."""
        if self.edit is not None and self.edit.how in ("subscribe", "unsubscribe"):
            return self.edit.how
        return "rollback" if self.number else "update"


class VersionChecked(Message, frozen=True, tag="cluster.version-checked"):
    """The proposed version can run in this executor, where it changes these fragments.

    `starts` are those of them that are new. `outputs` and `rules` are for the application's status, as in
    `Prepared`. `sizes` are those of the windows (ms) before what a change at an event time changes.
    """

    number: Count
    touched: tuple[str, ...]
    starts: tuple[str, ...] = ()
    outputs: tuple[OutputView, ...] = ()
    rules: dict[str, CountRule] = msgspec.field(default_factory=dict)
    sizes: tuple[Count, ...] = ()


class CheckScaling(Message, frozen=True, tag="cluster.check-scaling"):
    """Whether the state of a fragment that runs here can be divided into so many partitions; nothing changes.

    Asked; answered with `ScalingChecked` or `PrepareFailed`.
    """

    epoch: Count
    fragment: str
    partitions: Figure


class ScalingChecked(Message, frozen=True, tag="cluster.scaling-checked"):
    """The state of the fragment can be divided as requested; `state` is the scaling in its first stage."""

    state: ScalingState


class VersionsChanged(Message, frozen=True, tag="cluster.look-at-versions"):
    """The versions in the state directory have changed; sent, and repeated until `VersionReports` shows
    it."""

    epoch: Count


class LeavePermitted(Message, frozen=True, tag="cluster.may-leave"):
    """No producer writes any more to a fragment that leaves, which this attempt runs: its channels may end.

    Sent until it has left.
    """

    epoch: Count
    fragment: str
    attempt: Count


class HistoryReading(msgspec.Struct, frozen=True, array_like=True):
    """How far an attempt has read the former messages that proposal `id` waits for.

    `rows` messages were written, `at_ms` is the largest timestamp among them, and `until_ms` that of the
    fragment. `is_near`: the fragment has to stand, so that the rest can be read. `failed` is why they cannot
    be read, and `lost` are notices about messages that were left out.
    """

    id: ChangeId
    rows: Count = 0
    at_ms: TimeMs | None = None
    until_ms: TimeMs | None = None
    is_near: bool = False
    failed: ErrorView | None = None
    lost: tuple[str, ...] = ()


class VersionReport(msgspec.Struct, frozen=True, array_like=True):
    """A report: the version that an attempt has seen in the state directory, and its actions since.

    `number` is the version in force, `is_trial` whether it is on trial, and `newest` the largest number of a
    version, which distinguishes the situation before a change from that after its rollback. `began` is the
    first batch that has begun with it, `has_committed` whether messages have reached it in a batch that is
    committed, and `has_waited` whether the fragment has waited for some in vain. `failure` is why a batch
    with it has failed; the attempt then waits until the version is no longer on trial. `writes` are the
    channels that the fragment writes, or will write with the version that it switches to.

    For a version at an event time, `has_committed` is whether it got a message in a committed batch, or the
    clock has reached the time; `before` is the version that the fragment runs, too (0: none), and `clock_ms`
    its clock. `stands` is the proposal for which it stands between two batches, and `newest_ms` the latest
    time that a message may have had that it processed until then. `scaling` is the state of the wanted
    scaling of the fragment, `history` how far it has read the former messages that a change waits for.
    """

    fragment: str
    attempt: Count
    number: Count
    is_trial: bool = False
    began: Figure | None = None
    has_committed: bool = False
    failure: str | None = None
    writes: tuple[str, ...] = ()
    newest: Count = 0
    before: Count = 0
    clock_ms: TimeMs | None = None
    stands: ChangeId | None = None
    newest_ms: TimeMs | None = None
    scaling: ScalingState | None = None
    has_waited: bool = False
    history: HistoryReading | None = None


class VersionReports(Message, frozen=True, tag="cluster.versions-seen"):
    """The reports of an executor's attempts about versions; sent when they change, and with every report."""

    executor_id: str
    epoch: Count
    seen: tuple[VersionReport, ...]
