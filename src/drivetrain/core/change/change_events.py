"""The events and effects of a change of a running application, and its outcomes.

The table in `core.change.live_change` has the effects of each event, by stage.

Called by `live_change`, by the shells `spark.run.live_changes` and `application_changes`, and by those that
record a change or show how it ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Outcome(StrEnum):
    """How a change has ended."""

    DONE = "done"
    ROLLED_BACK = "rolled back"
    REFUSED = "refused"


@dataclass(frozen=True)
class Change:
    """From version `before` to version `number`; `touched` are the ids of the fragments that differ.

    `starts` are those of them that only the new version has, `restarts` those whose query has to restart,
    `leaves` the fragments that the new version does not have, each in topological order.
    """

    number: int
    before: int
    touched: frozenset[str]
    starts: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()

    @property
    def may_fail_before_a_batch(self) -> tuple[str, ...]:
        """The fragments whose query starts with the new version: starting it may fail already."""
        return (*self.starts, *self.restarts)


# -- events -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChangeProposed:
    """Everything of the change has been compiled and checked."""

    change: Change


@dataclass(frozen=True)
class ChangeResumed:
    """A process has started and found the change recorded but not ended."""

    change: Change


@dataclass(frozen=True)
class VersionRecorded:
    """The version of the change is durable: it is in force."""


@dataclass(frozen=True)
class RecordingFailed:
    """The version could not be made durable."""

    why: str


@dataclass(frozen=True)
class BatchBegan:
    """A fragment begins its first batch with the new version."""

    fragment: str
    batch_id: int


@dataclass(frozen=True)
class BatchCommitted:
    """A fragment has committed a batch in which messages reached the code of the new version."""

    fragment: str


@dataclass(frozen=True)
class FragmentEnded:
    """A fragment cannot prove the change any more: its input has ended, or its clock has reached the time at
    which the change takes effect."""

    fragment: str


@dataclass(frozen=True)
class FragmentWaited:
    """No message has reached the new code of a fragment, for as long as a trial waits for one."""

    fragment: str


@dataclass(frozen=True)
class BatchFailed:
    """A fragment has failed; `why` is the text to show, with the traceback if the user's code raised."""

    fragment: str
    why: str


@dataclass(frozen=True)
class ChangeGivenUp:
    """The user has ended the trial."""

    why: str


@dataclass(frozen=True)
class OutcomeRecorded:
    """The outcome of the change is durable."""


Event: TypeAlias = (
    ChangeProposed
    | ChangeResumed
    | VersionRecorded
    | RecordingFailed
    | BatchBegan
    | BatchCommitted
    | FragmentEnded
    | FragmentWaited
    | BatchFailed
    | ChangeGivenUp
    | OutcomeRecorded
)

# -- effects ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordVersion:
    """Make the version of the change durable, in one step."""

    change: Change


@dataclass(frozen=True)
class UseVersion:
    """Have a fragment use a version from its next batch on."""

    fragment: str
    number: int


@dataclass(frozen=True)
class StartFragment:
    """Start a fragment that only the new version has."""

    fragment: str


@dataclass(frozen=True)
class DropFragment:
    """Remove a fragment that the version in force lacks; `goes_back` if it was new."""

    fragment: str
    goes_back: bool


@dataclass(frozen=True)
class RecordOutcome:
    """Make the outcome of the change durable; `fragment` is the one that failed, in a rollback."""

    change: Change
    outcome: Outcome
    fragment: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class ReportOutcome:
    """Report the outcome to the process that asked for the change.

    `unproven` are the fragments that got no message during the trial of a change that is done.
    """

    change: Change
    outcome: Outcome
    fragment: str | None = None
    why: str | None = None
    unproven: tuple[str, ...] = ()


Effect: TypeAlias = RecordVersion | UseVersion | StartFragment | DropFragment | RecordOutcome | ReportOutcome
