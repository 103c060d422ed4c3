"""An application's newest checkpoint in an object store, from which it continues if its machine is lost.

Problem: a checkpoint is on a disk, and the disk may be lost with its machine. Results are published when a
checkpoint is complete. So the checkpoint must be in the store before that, or results would be computed and
published twice. And a machine that was wrongly considered lost must publish nothing more.

Design: each checkpoint becomes objects before its results are published. Files that have changed since the
last one are concatenated into packs; others stay in the packs where they are. Then one object is created
that names them all, only if there is none of its number: the numbers are what the application's processes
compete for. A process that starts elsewhere fetches the newest checkpoint and claims the next number for
itself; the former one fails to create its next, and ends.

    <place>/<application>/checkpoints/<number>.json     created last: the files, and where they are
    <place>/<application>/packs/<owner>/<number>-<n>    contents of files, one after the other

What if we die here: packs that no checkpoint names are deleted when the next process claims its number.

Invariants:

1. The newest checkpoint is complete, and stays until there is a newer one.
2. Of all processes that use one number, one succeeds; the others raise TakenOverError, or claim the next
   number before they compute anything.
3. An older number may be free again, so a process also looks for newer ones after creating its own.
4. A process computes only from the checkpoint whose next number it has claimed.
5. Names of packs have their owner, so a process that comes late deletes nothing that others need.

In a cluster, the executor that prepares the application claims a number, and its application master adds
checkpoints to that claim, from the same directory.

Called by `checkpoint_copying` (`add`), `preparing` and `from_savepoint`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.runtime.checkpoints.checkpoint_copy import (
    CheckpointCopy,
    Claimant,
    TakenOverError,
    encoded,
    other_state,
    running,
    state_gone,
    taken_over,
)
from drivetrain.runtime.checkpoints.checkpoint_packs import PackBuilder
from drivetrain.runtime.checkpoints.claim_file import Claim, ClaimFile
from drivetrain.runtime.checkpoints.packed_checkpoints import PackedCheckpoints
from drivetrain.runtime.checkpoints.savepoint_manifest import Manifest, SavedFile
from drivetrain.runtime.checkpoints.state_lease import RETRY_MS, StateLease
from drivetrain.runtime.objects.locations import open_place
from drivetrain.runtime.objects.object_store import ObjectStore
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.state_place import copies_place, is_remote

if TYPE_CHECKING:
    from drivetrain.config import Config
    from drivetrain.runtime.run_directory import RunDirectory

_TRIES: Final = 3
NO_CHANGES: Final[Mapping[str, Path]] = {}


class CopiedCheckpoints(PackedCheckpoints):
    """The checkpoints of one application below `folder` of a store.

    `place` names it in errors; `directory` is the application's state directory on this machine. With a
    `lease` they are its state, and that directory is only where it works. They are claimed `by` an epoch of a
    cluster, or by this process itself.
    """

    def __init__(
        self,
        store: ObjectStore,
        folder: str,
        place: str,
        directory: Path,
        lease: StateLease | None = None,
        by: Claimant = Claimant(),
    ) -> None:
        super().__init__(store, folder, place)
        self._claim: Final = ClaimFile(directory)
        self.lease: Final = lease
        self._by: Final = by
        self._replaceable: str | None = None
        """The process whose lease is over."""
        self._ended_with: int | None = None
        """The last checkpoint of a process that has certainly ended."""
        self._changing: Final = threading.RLock()
        self._begun: int | None = None
        """The checkpoint that this process's state began with; -1: there was none, None: it is older."""
        self.may_predecessor_run = False
        """Whether the process that this one has replaced by `claim` may not have noticed that yet."""
        self.is_outdated = False
        """Whether the former process made more checkpoints before `claim`: the state has to begin again."""
        self._last: CheckpointCopy | None = None
        self._changed_by = ""

    @classmethod
    def of(cls, rundir: RunDirectory, config: Config, by: Claimant = Claimant()) -> CopiedCheckpoints | None:
        """The copies of an application's checkpoints; None if its configuration names no place for them."""
        place = copies_place(config)
        if place is None:
            return None
        settings = StoreSettings.of(config)
        store, name = open_place(place, settings)
        folder, named = f"{name}/{rundir.app_id}", f"{place.rstrip('/')}/{rundir.app_id}"
        if not is_remote(config):
            return cls(store, folder, named, rundir.path)
        impatient, _ = open_place(place, settings, retry_ms=RETRY_MS)
        return cls(store, folder, named, rundir.path, StateLease(impatient, folder, named), by)

    @property
    def are_changes_own(self) -> bool:
        """Whether the changes in the newest checkpoint, as it was read last, are of the same submission."""
        return self._by.submission != "" and self._by.submission == self._changed_by

    # -- beginning -------------------------------------------------------------------------------------

    def begin(self) -> CheckpointCopy | None:
        """The newest checkpoint, with which a new state directory begins.

        A process that was wrongly considered lost may make more checkpoints, and publish their results,
        until `claim`: then the state `is_outdated`.
        """
        newest, self.is_outdated = self.newest(), False
        self._changed_by = "" if newest is None else newest.changed_by
        self._begun = -1 if newest is None else newest.number
        return newest

    # -- writing ---------------------------------------------------------------------------------------

    def require_own(self, *, has_state: bool = True) -> None:
        """Raise TakenOverError when another process has continued the application since this directory's.

        A directory that `has_state` and has copied nothing is not what any copy continues.
        """
        newest = self.newest() if has_state else None
        if newest is None:
            return
        claim = self._claim.read()
        if claim is None:
            raise other_state(self.place, newest)
        if newest.owner != claim.owner and newest.number != claim.after:
            raise self._taken(newest)

    def newest_elsewhere(self, *, has_state: bool, was_copied: bool) -> CheckpointCopy | None:
        """The newest checkpoint if the state here is not its state: None if it is, or if there is none yet.

        Waits until its process may be replaced. Raises UnavailableError when that runs, or is of a later
        epoch of the same submission, and InputError if there is nothing although a checkpoint of the state
        here `was_copied`. A directory that `has_state` no more continues nothing.
        """
        newest, claim = self.newest(), self._claim.read()
        self._changed_by = "" if newest is None else newest.changed_by
        if newest is None:
            if was_copied:
                raise state_gone(self.place)
            return None
        if has_state and claim is not None and newest.owner == claim.owner:
            return None
        if self._by.is_replaced(newest):
            raise self._taken(newest)
        if self.lease is not None:
            self._replaceable = newest.owner
            if not self._by.replaces(newest) and self.lease.wait_until_over(newest.owner):
                self._ended_with = newest.number
        return newest

    def is_own(self) -> bool:
        """Whether the newest checkpoint is of the same submission."""
        newest = self.newest()
        return newest is not None and self._by.is_of(newest)

    def require_newest(self) -> None:
        """Raise TakenOverError when there is a newer checkpoint than this process's; one request."""
        last = self._last
        if last is not None and self._has_later(last.number):
            newest = self.newest()
            if newest is not None and newest.owner != self._owner:
                raise self._taken(newest)

    def claim(self, *, starts_over: bool) -> bool:
        """Claim the next number for this state directory, unless it has the newest.

        Until its first checkpoint the application continues from the newest one, or with `starts_over` from
        none. Returns whether the newest is another process's. Raises TakenOverError.
        """
        is_others = self._claimed(starts_over=starts_over)
        if self.lease is not None:
            self.lease.begin(self._owner)
        return is_others

    def resume(self) -> None:
        """Continue what another process of this machine has claimed for this state directory.

        Raises TakenOverError unless the newest checkpoint is that claim's.
        """
        claim, newest = self._claim.read(), self.newest()
        if claim is None or newest is None or newest.owner != claim.owner:
            raise self._taken(newest)
        self._owner, self._last, self._numbers = claim.owner, newest, [newest.number]
        self._made = set(newest.packs)

    def _claimed(self, *, starts_over: bool) -> bool:
        claim = self._claim.read()
        packs = self._names_in(self._packs)  # before it is known who has the application: see `_sweep`
        if claim is not None:
            return self._claim_next(claim, self.newest(), packs, starts_over=starts_over)
        owner, tries = uuid.uuid4().hex, _TRIES
        while True:
            newest, tries = self.newest(), tries - 1
            last = -1 if newest is None else newest.number
            if newest is not None:
                self._require_turn(newest, (owner, self._owner, self._replaceable))
            claim = Claim(owner, last, _now_ms() if newest is None else newest.series_ms)
            self._claim.write(claim)
            self.is_outdated = not starts_over and self._begun not in (None, last)
            try:
                return self._claim_next(claim, newest, packs, starts_over=starts_over)
            except TakenOverError:  # the former process was faster; nothing was computed from this state
                if not tries:
                    raise

    def _require_turn(self, newest: CheckpointCopy, known: Collection[str | None]) -> None:
        """Raise UnavailableError unless the process of the newest checkpoint may be replaced."""
        if self._by.is_replaced(newest):
            raise self._taken(newest)
        if self.lease is not None and newest.owner not in known and not self._by.replaces(newest):
            raise running(self.place, newest.host)  # it was faster, and now it has a lease

    def _claim_next(
        self, claim: Claim, newest: CheckpointCopy | None, packs: Collection[str], *, starts_over: bool
    ) -> bool:
        self._owner, self._last = claim.owner, newest
        if newest is None:
            signed = self._signed(claim.after + 1)
            self._create(CheckpointCopy(**signed, series_ms=claim.series_ms, manifest=None))
            return False
        is_others = newest.owner != claim.owner
        if is_others:
            if newest.number != claim.after:
                raise self._taken(newest)
            if starts_over:
                newest = CheckpointCopy(
                    newest.number, newest.owner, newest.host, newest.made_at_ms, newest.series_ms, None
                )
        self.may_predecessor_run = is_others and newest.number != self._ended_with
        if is_others or newest.is_finished:
            signed = self._signed(newest.number + 1)
            self._create(msgspec.structs.replace(newest, **signed, is_finished=False))
        assert self._last is not None
        self._sweep(self._last, packs)
        return is_others

    def add(
        self,
        files: Iterable[tuple[str, Path]],
        manifest: Callable[[Mapping[str, SavedFile]], Manifest],
        changes: Mapping[str, Path] = NO_CHANGES,
    ) -> int:
        """Copy a checkpoint, whose results may be published afterwards; returns how many bytes were sent.

        `files` are its files by name, `manifest` makes its manifest; `changes` are those of `change_files`.
        Raises TakenOverError, OutputError and UnavailableError; then nothing may be published.
        """
        with self._changing:
            return self._added(files, manifest, changes)

    def keep(self, changes: Mapping[str, Path], more: Mapping[str, bytes]) -> None:
        """Note how the application has changed, beside the newest checkpoint, before that comes into force.

        `changes` are as for `add`; `more` are those that are not on the disk yet, or not as they are there;
        an empty one is to be gone. Raises the errors of `add`; then it may be noted or not, and the next
        `add` or `keep` replaces it.
        """
        with self._changing:
            last = self._last
            assert last is not None, "`claim` comes first"
            packing = self._packing(last)
            self._pack(packing, changes.items(), more)
            checkpoint = {} if last.manifest is None else last.manifest.files
            self._name_all(last, packing, checkpoint, packing.files, last.manifest)

    def finish(self) -> None:
        """Note that the application has finished; raises the same errors as `add`."""
        with self._changing:
            if self._last is not None:
                signed = self._signed(self._last.number + 1)
                self._create(msgspec.structs.replace(self._last, **signed, is_finished=True))
                self._forget_older(self._last.packs.keys())

    def close(self) -> None:
        """Say that the process has ended, if it has a lease."""
        if self.lease is not None:
            self.lease.end()

    def _added(
        self,
        files: Iterable[tuple[str, Path]],
        manifest: Callable[[Mapping[str, SavedFile]], Manifest],
        changes: Mapping[str, Path],
    ) -> int:
        last = self._last
        assert last is not None, "`claim` comes first"
        packing = self._packing(last)
        self._pack(packing, changes.items())  # first, in packs of their own: they are read alone
        changed = dict(packing.files)
        self._pack(packing, files)
        checkpoint = {name: file for name, file in packing.files.items() if name not in changed}
        self._hashes = packing.hashes
        maybe_crash(CrashPoint.COPY_UPLOADED)
        self._name_all(last, packing, checkpoint, changed, manifest(checkpoint))
        maybe_crash(CrashPoint.COPY_NAMED)
        return sum(packing.sizes.values())

    def _name_all(
        self,
        last: CheckpointCopy,
        packing: PackBuilder,
        checkpoint: Mapping[str, SavedFile],
        changed: Mapping[str, SavedFile],
        manifest: Manifest | None,
    ) -> None:
        """Create the next number, with the files of a checkpoint and those that say what has changed."""
        known, sizes = last.places | packing.places, last.packs | packing.sizes
        places = {file.sha256: known[file.sha256] for file in (*checkpoint.values(), *changed.values())}
        made = CheckpointCopy(
            **self._signed(last.number + 1),
            series_ms=last.series_ms,
            manifest=manifest,
            places=places,
            packs={pack: sizes[pack] for pack, _ in places.values() if pack},
            changes=dict(changed),
            changed_by=self._by.submission,
            is_finished=last.is_finished,  # a checkpoint that was under way at the end takes nothing back
        )
        self._create(made)
        self._forget_older(made.packs.keys() | last.packs.keys())

    def _signed(self, number: int) -> dict[str, Any]:
        who = {"owner": self._owner, "host": socket.gethostname(), **self._by._asdict()}
        return {"number": number, "made_at_ms": _now_ms(), **who}

    def _create(self, copy: CheckpointCopy) -> None:
        """Create a checkpoint's object, and make it the last one."""
        if not self._store.put_if_absent(self._name(copy.number), encoded(copy)):
            newest = self.newest()
            if newest is None or newest.owner != self._owner:
                raise self._taken(newest)
            # A try whose answer did not come in time: it counts as a checkpoint that was rolled back.
            self._numbers.append(newest.number)
            self._create(msgspec.structs.replace(copy, number=newest.number + 1))
            return
        if self._has_later(copy.number):
            raise self._taken(self.newest())
        self._last = copy
        self._numbers.append(copy.number)

    # -- parts -----------------------------------------------------------------------------------------

    def _taken(self, newest: CheckpointCopy | None) -> TakenOverError:
        return taken_over(self.place, newest, is_state=self.lease is not None)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
