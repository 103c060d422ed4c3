"""The version that each fragment of an embedded run should have; switches queries that run another one.

Problem: a fragment may be recovered or restarted at any moment of a change, and then has another query.

Design: the wanted version of each fragment that a change concerns is kept here. `look` compares it with what
the fragment's query runs, again and again, and has the query switch to other branches, or restart if its
trunk is another one. All other fragments should run the version in force; they differ from it only in the
trunk, after a crash.

Invariants:

1. A query gets branches of a version only if it has the trunk of that version.

Called by `live_changes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from drivetrain.spark.run.fragment_versions import fits, switch_version
from drivetrain.spark.run.trunk_changes import TrunkChanges

if TYPE_CHECKING:
    from drivetrain.core.change.change_events import Change
    from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
    from drivetrain.spark.batch.query_versions import BranchSet
    from drivetrain.spark.run.application_versions import ApplicationVersions
    from drivetrain.spark.run.change_proposal import Proposal
    from drivetrain.spark.run.fragment_driver import FragmentDriver
    from drivetrain.spark.run.handovers import Handovers


class WantedVersions:
    """The wanted versions of the fragments that `drivers` drive, by id."""

    def __init__(
        self, versions: ApplicationVersions, drivers: Mapping[str, FragmentDriver], handovers: Handovers
    ) -> None:
        self.trunks: Final = TrunkChanges(versions, drivers)
        self._versions: Final = versions
        self._drivers: Final = drivers
        self._handovers: Final = handovers
        self._wanted: Final[dict[str, int]] = {}

    def want(self, fragment: str, number: int) -> None:
        """Have a fragment run a version from its next batch on."""
        self._wanted[fragment] = number

    def forget(self, fragment: str) -> None:
        """A fragment is about to leave: it keeps the version that it has."""
        self._wanted.pop(fragment, None)

    def of(self, fragment: str) -> int:
        """The version that a fragment should run; one that leaves should run the one that it has."""
        in_force = self._versions.in_force.record
        if fragment in self._wanted or fragment in in_force.fragments:
            return self._wanted.get(fragment, in_force.number)
        versions = self._drivers[fragment].query.versions
        return in_force.number if versions is None else versions.trunk

    def look(self, change: Change | None, proposal: Proposal | None) -> None:
        """Switch every fragment to the version that it should run; `proposal` may have its branches."""
        for fragment in list(self._drivers):
            number, on_trial = self.of(fragment), False
            if change is not None and fragment in change.touched:
                on_trial = number == change.number
            if self.trunks.restarts(fragment, number, on_trial=on_trial) or fragment not in self._wanted:
                continue
            before = self._handovers.before(fragment, number)
            made = partial(self._set, proposal, number, before)
            switch_version(self._drivers[fragment], number, made, before=before, on_trial=on_trial)

    def _set(
        self,
        proposal: Proposal | None,
        number: int,
        before: int,
        query: MicroBatchQuery,
        at_hand: BranchSet | None,
    ) -> BranchSet:
        if at_hand is None and proposal is not None and proposal.change.number == number:
            found = proposal.sets.get(query.fragment.id)
            at_hand = found if found is not None and found.is_of(number, before) else None
        fitting = fits(at_hand, query)
        if fitting is not None:
            return fitting
        if before:
            return self._versions.handover_set(before, number, query)
        return self._versions.branch_set(self._versions.of_number(number), query)
