"""The versions of an application's graph, each with what changed and its outcome.

Called by `cli.changes.versions` and `console.handlers.versions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.change_stages import ChangeStage, unproven, with_durations
from drivetrain.core.change.difference import Difference, difference
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.runtime.graph_versions import Ending, GraphVersions


class Trial(StrEnum):
    """The trial of a version whose change has no outcome."""

    UNDER_WAY = "under way"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class VersionSummary:
    """A version that is kept, what differs from the one before, and its outcome."""

    record: GraphVersion
    difference: Difference | None
    ending: Ending | None
    is_in_force: bool
    trial: Trial | None
    stages: tuple[ChangeStage, ...] = ()
    handing_over: str | None = None
    """While the version before hands over to it: the progress of that, in words."""

    @property
    def outcome(self) -> str:
        """Its outcome, in words."""
        if self.ending is not None and self.ending.outcome is Outcome.ROLLED_BACK:
            return "rolled back"
        if not self.is_in_force:
            return "replaced" if self.trial is None else "replaced, its trial was interrupted"
        match self.trial:
            case None:
                untried = unproven(self.stages)
                return f"in force, untried in {', '.join(untried)}" if untried else "in force"
            case Trial.UNDER_WAY:
                return "in force, on trial"
            case Trial.INTERRUPTED:
                return "in force, its trial was interrupted"

    def as_data(self) -> dict[str, object]:
        """As plain data for `--json`."""
        version, ending = self.record, self.ending
        changes = () if self.difference is None else self.difference.changes
        return {
            "version": version.number,
            "made_at_ms": version.made_at_ms,
            "made_by": version.made_by,
            "made_how": version.made_how,
            "follows": version.follows or None,
            "in_force": self.is_in_force,
            "trial": self.trial,
            "outcome": None if ending is None else ending.outcome,
            "ended_at_ms": None if ending is None else ending.at_ms,
            "at_ms": version.at_ms,
            "history_ms": version.history_ms,
            "handing_over": self.handing_over,
            "stages": with_durations(self.stages),
            "failed_fragment": None if ending is None else ending.fragment,
            "why": None if ending is None else ending.why,
            "leaving": {} if ending is None else dict(ending.leaving),
            "processors": sorted(version.processors),
            "changes": {change.id: change.fate for change in changes if change.fate != "kept"},
        }


def known_versions(
    versions: GraphVersions, in_force: int, *, is_running: Callable[[], bool]
) -> list[VersionSummary]:
    """The versions that are kept, the oldest first; `in_force` is the number of the one that is.

    `is_running` returns whether the application runs now: then a trial continues. Raises InputError for
    damaged files.
    """
    stored = {number: (versions.version(number), versions.ending(number)) for number in versions.numbers()}
    return known_among(stored, in_force, is_running=is_running, stages=versions.stages)


def _options(record: GraphVersion) -> ChangeOptions:
    """The options of the change to a version, as far as they affect its processors."""
    states = (record.fragments[id].stateful for id in record.drops)
    drops = tuple(id for id in states if id is not None)
    return ChangeOptions(discards=record.discards, drops=drops, history_ms=record.history_ms)


def known_among(
    stored: Mapping[int, tuple[GraphVersion, Ending | None]],
    in_force: int,
    *,
    is_running: Callable[[], bool],
    stages: Callable[[int], tuple[ChangeStage, ...]] = lambda _: (),
) -> list[VersionSummary]:
    """Like `version_history`, for versions by number, in growing order, with the outcomes of their changes.

    `stages` is the history of the change to a version.
    """
    known = []
    for number, (record, ending) in stored.items():
        before = stored[record.follows][0] if record.follows in stored else None
        trial = None
        if record.made_how != "run" and ending is None:
            is_under_way = number == in_force and is_running()
            trial = Trial.UNDER_WAY if is_under_way else Trial.INTERRUPTED
        found = None if before is None else difference(before, record, options=_options(record))
        reached = stages(number)
        known.append(VersionSummary(record, found, ending, number == in_force, trial, reached))
    return known
