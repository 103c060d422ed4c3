"""Removes the results that a version wrote to its new sinks before it was rolled back.

Problem: a batch may still write to such a sink when the rollback is recorded, and the run may be stopped, or
die, before the removal. Results of other versions, in other sinks or of other writers must stay.

Design: the record of a version names its new sinks; the outcome of one that is rolled back names those whose
results are not removed yet. `look` removes the results of a sink once no batch of its fragment can run with
the version, and drops its name from the outcome. A run removes what the previous one has left before its
first batch. A removal that fails is not tried again: a notice reports it.

What if we die here: the outcome still has the name, and the next run removes the rest.

Invariants:

1. Results are removed only from a sink that no earlier version had, while no version in force has it.

Called by `live_changes`, and by executors.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Final

from drivetrain.config.references import scrubbed
from drivetrain.core.change.change_events import Change, Outcome
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.runtime.graph_versions import HowItLeaves
from drivetrain.spark.connector.publishing import abort_after

if TYPE_CHECKING:
    from drivetrain.spark.run.application_versions import ApplicationVersions, LoadedVersion
    from drivetrain.spark.run.fragment_driver import FragmentDriver


def refuse_withdrawn(waiting: Set[str], sinks: Mapping[str, object]) -> None:
    """Raise UserError when one of some sinks is among those that are still to be removed."""
    found = sorted(waiting & sinks.keys())
    if found:
        raise UserError(
            "the output of a rolled-back version is still being removed from this sink",
            where=", ".join(found),
            remedy="try again in a moment",
        )


class WithdrawnSinks:
    """The sinks of an application that are to be removed; `drivers` drive the fragments of this process."""

    def __init__(self, versions: ApplicationVersions, drivers: Mapping[str, FragmentDriver]) -> None:
        self._versions: Final = versions
        self._stored: Final = versions.rundir.versions
        self._drivers: Final = drivers
        self._waiting: list[tuple[LoadedVersion, str]] = []

    def note(self, change: Change, fragment: str | None, why: str | None) -> None:
        """Record that an application goes back from a version, with its new sinks."""
        version = self._versions.in_force
        new = version.record.new_sinks
        leaving: dict[str, HowItLeaves] = dict.fromkeys(change.starts, "is discarded")
        ending = (change.number, Outcome.ROLLED_BACK, fragment, why)
        self._stored.note_ending(*ending, to_remove=new, leaving=leaving)
        self._waiting += [(version, id) for id in new]

    def find(self) -> None:
        """Find sinks of this process's fragments that another process has recorded; raises InputError when
        an outcome is damaged."""
        self._waiting = []
        for number, ids in self._stored.to_remove().items():
            try:
                record = self._stored.version(number)
                here = [id for id in ids if record.fragment_of(id) in self._drivers]
                self._waiting += [(self._versions.of_number(number), id) for id in here]
            except DrivetrainError as error:
                self._give_up(number, error)

    def remove_of(self, fragment: str) -> None:
        """A fragment of a rolled-back version has ended for good: remove the results in its new sinks."""
        for number, ids in self._stored.to_remove().items():
            try:
                version = self._versions.of_number(number)
            except DrivetrainError as error:
                self._give_up(number, error)
                continue
            for id in ids:
                if version.record.fragment_of(id) == fragment:
                    self._remove(version, id)

    def refuse(self, sinks: Mapping[str, object]) -> None:
        """Raise UserError when one of some sinks still has results of a version that was rolled back."""
        refuse_withdrawn({id for _, id in self._waiting}, sinks)

    def resume(self) -> None:
        """Remove results that the previous run has left; called before any batch runs."""
        for number in self._stored.numbers():
            try:
                ending = self._stored.ending(number)
                if ending is None or not ending.to_remove:
                    continue
                version = self._versions.of_number(number)
            except DrivetrainError as error:
                self._give_up(number, error)
                continue
            for id in ending.to_remove:
                self._remove(version, id)

    def _give_up(self, number: int, error: DrivetrainError) -> None:
        self._versions.notices.append(f"what version {number} gave to new sinks stays: {error}")
        self._stored.note_removed(number, None)

    def look(self) -> None:
        """Remove what can be removed now."""
        waiting, self._waiting = self._waiting, []
        for version, id in waiting:
            driver = self._drivers.get(version.plan.fragment_of(id).id)
            if driver is None:  # the fragment was new, too, and is stopped
                self._remove(version, id)
                continue
            query, versions = driver.query, driver.query.versions
            if not query.turn.acquire(blocking=False):
                self._waiting.append((version, id))
                continue
            try:
                runs = versions is not None and versions.can_still_run(version.record.number, query.batch_id)
                if runs and not driver.is_finished:
                    self._waiting.append((version, id))
                else:
                    self._remove(version, id)
            finally:
                query.turn.release()

    def _remove(self, version: LoadedVersion, id: str) -> None:
        number, sink = version.record.number, version.sinks[id]
        try:
            reason = self._why_it_stays(version, id)
            if reason is None:
                abort_after(sink, None)
                sink.check_fresh()
                sink.fresh()
                shutil.rmtree(self._versions.rundir.path / "sinks" / id, ignore_errors=True)
        except (DrivetrainError, OSError) as error:
            reason = str(error)
        if reason is not None:
            self._versions.notices.append(scrubbed(f"what version {number} gave to {id} stays: {reason}"))
        self._stored.note_removed(number, id)

    def _why_it_stays(self, version: LoadedVersion, id: str) -> str | None:
        in_force = self._versions.in_force
        if id in in_force.sinks:
            return f"version {in_force.record.number} has a sink of that name"
        if getattr(version.plan.graph.nodes[id].operation.target, "on_fresh", None) == "empty":
            return "its table would be emptied, and others may have rows in it"
        return None
