"""The scalings in an application's state directory, as its application master reads and records them.

Problem: an application master that was replaced may only be frozen; when it continues, it must not have a
fragment scaled, or end a scaling of its successor. And a write that fails may have happened nevertheless.

Design: like `stored_versions`. Whether a scaling is done is read from the fragment's checkpoint.

Invariants:

1. A scaling that is done is in the list before its file is removed, and once.
2. If the state is in an object store, the store has what is wanted until it has a checkpoint that was
   divided: another worker continues with the state as it was before, and scales it again.

Called by `stored_versions` and `application_scalings`, in threads. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.core.change.scaling_state import (
    CompletedScaling,
    PlannedScaling,
    ScalingState,
    no_such_fragment,
    planned_scaling,
)
from drivetrain.errors import DrivetrainError, InputError, UnavailableError
from drivetrain.runtime.scalings import Scalings
from drivetrain.runtime.state.state_partitions import state_partitions
from drivetrain.runtime.wanted_scaling import FILE, WantedScaling, WantedScalingFile

if TYPE_CHECKING:
    from drivetrain.runtime.durable_file import Keep
    from drivetrain.runtime.preparation import Preparer
    from drivetrain.runtime.run_directory import RunDirectory


class StoredScalings:
    """The scalings in `rundir`, which notes this application master as `me`.

    `keep` notes elsewhere what is wanted, before it is here.
    """

    def __init__(self, rundir: RunDirectory, me: Preparer, keep: Keep | None = None) -> None:
        self._rundir: Final = rundir
        self._me: Final = me
        self._keep: Final = keep
        self._wanted: Final = WantedScalingFile(rundir.path)
        self._scalings: Final = Scalings(rundir.path)

    def forget_others(self) -> None:
        """Forget a scaling that an earlier submission of the application wanted; the fence is held."""
        wanted = self._known()
        if wanted is None or wanted.app_id != self._me.app_id:
            self._wanted.remove()

    def _known(self) -> WantedScaling | None:
        """What is wanted; None if that is unknown: the user asks again."""
        try:
            return self._wanted.read()
        except InputError:
            return None

    def read_state(self) -> ScalingState | None:
        """The scaling that is wanted, as it was asked for; else the last one that was done."""
        wanted = self._wanted.read()
        if wanted is not None and not (wanted.is_done and self._is_done(wanted.state)):
            return wanted.state
        done = self.done()
        return done[-1].of if done else None

    def _is_done(self, state: ScalingState) -> bool:
        return state_partitions(self._rundir.fragment(state.fragment) / "checkpoint") == state.after

    def done(self) -> list[CompletedScaling]:
        """Those that are done, the newest last."""
        try:
            return self._scalings.all()
        except InputError:
            return []  # nothing depends on it; the next addition reports the damage

    def planned(self, state: ScalingState) -> PlannedScaling:
        """What a scaling that can begin would do."""
        return planned_scaling(state, [scaled.of for scaled in self.done()])

    def fragment_of(self, name: str) -> str:
        """The fragment of the version in force with that id, or with that processor.

        Raises UserError without one, and UnavailableError before there is a version.
        """
        record = self._rundir.versions.in_force()
        if record is None:
            raise UnavailableError("the application has not begun", remedy="try again")
        found = name if name in record.fragments else record.fragment_of(name)
        if found is None:
            raise no_such_fragment(record.application, record.fragments, name)
        return found

    def begin(self, state: ScalingState) -> None:
        """Have a fragment scaled; raises UnavailableError when another application master decides by now,
        and errors of writing: then nothing has changed."""
        with self._rundir.preparation.while_prepared_by(self._me):
            wanted, before = WantedScaling(self._me.app_id, state), self._known()
            if before is not None and before.is_done:
                raise UnavailableError(
                    "the last scaling is not in a checkpoint in the store yet",
                    where=f"fragment {before.state.fragment}",
                    remedy="try again after the next checkpoint",
                )
            try:
                self._wanted.write(wanted, self._keep)
            except DrivetrainError:
                if self._wanted.read() != wanted:
                    raise
                # The file is there, and is what counts; only its directory could not be synced.

    def end(self, state: ScalingState) -> tuple[ScalingState, DrivetrainError | None]:
        """Record how a scaling has ended, according to the checkpoint; raises like `begin`.

        `state` is the report of its attempt, or the reason why there is none. Returns how it has ended, and
        why it could not be added to the list.
        """
        unlisted = None
        with self._rundir.preparation.while_prepared_by(self._me):
            if self._is_done(state):
                state = msgspec.structs.replace(state, why=None)
                try:
                    if all(scaled.of.id != state.id for scaled in self._scalings.all()):
                        self._scalings.note(state)
                except DrivetrainError as error:
                    unlisted = error
                self._note_done()
            else:
                if state.why is None:
                    state = msgspec.structs.replace(state, why="the application went back to a checkpoint")
                if self._keep is not None:
                    self._keep({FILE: b""})
                self._wanted.remove()
        return state, unlisted

    def _note_done(self) -> None:
        wanted = self._wanted.read()
        if self._keep is None or wanted is None:
            self._wanted.remove()
        elif not wanted.is_done:
            self._wanted.write(msgspec.structs.replace(wanted, is_done=True))
