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

Called by `run_checkpoints` (`add`), `preparing` and `from_savepoint`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import hashlib
import re
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from drivetrain.config.catalog import checkpoint as keys
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.durable import writing
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.runtime.checkpoints.checkpoint_packs import Hashes, PackBuilder, kept_places
from drivetrain.runtime.checkpoints.claim_file import Claim, ClaimFile
from drivetrain.runtime.checkpoints.savepoint_manifest import (
    Manifest,
    SavedFile,
    SavepointError,
    write_manifest,
)
from drivetrain.runtime.objects.locations import open_place
from drivetrain.runtime.objects.object_store import ObjectStore
from drivetrain.runtime.objects.settings import StoreSettings

if TYPE_CHECKING:
    from drivetrain.config import Config
    from drivetrain.runtime.run_directory import RunDirectory

_TRIES: Final = 3
_NAME: Final = re.compile(r"[0-9]{20}\.json")


IF_TAKEN_OVER: Final = (
    "leave it to that process; to continue here, end it, and delete this application's state directory on "
    "this machine"
)
"""The remedy of a `TakenOverError`."""


class TakenOverError(UnavailableError):
    """Another process continues the application from a copy of its checkpoint."""

    code = "taken-over"


class CheckpointCopy(msgspec.Struct, frozen=True):
    """One checkpoint in the store.

    `manifest` is None when the application starts over with this number. `places` has, by the SHA-256 of a
    file, its pack and where it begins there; `packs` the sizes of all packs that are needed.
    """

    number: int
    owner: str
    host: str
    made_at_ms: int
    manifest: Manifest | None
    places: dict[str, tuple[str, int]] = {}
    packs: dict[str, int] = {}


class _Envelope(msgspec.Struct):
    copy: msgspec.Raw
    sha256: str


class CopiedCheckpoints:
    """The checkpoints of one application below `folder` of a store.

    `place` names it in errors; `directory` is the application's state directory on this machine.
    """

    def __init__(self, store: ObjectStore, folder: str, place: str, directory: Path) -> None:
        self._store: Final = store
        self._checkpoints: Final = f"{folder}/checkpoints".lstrip("/")
        self._packs: Final = f"{folder}/packs".lstrip("/")
        self.place: Final = place
        self._claim: Final = ClaimFile(directory)
        self._owner = ""
        self._begun: int | None = None
        """The checkpoint that this process's state began with; -1: there was none, None: it is older."""
        self.is_outdated = False
        """Whether the former process made more checkpoints before `claim`: the state has to begin again."""
        self._last: CheckpointCopy | None = None
        self._numbers: list[int] = []
        """The checkpoints of this process that are there, ascending."""
        self._made: set[str] = set()
        """The packs that are there and not deleted yet."""
        self._hashes: Hashes = {}

    @classmethod
    def of(cls, rundir: RunDirectory, config: Config) -> CopiedCheckpoints | None:
        """The copies of an application's checkpoints; None if its configuration names no place for them."""
        place = config[keys.COPY_TO]
        if place == keys.COPY_TO.default:
            return None
        store, folder = open_place(place, StoreSettings.of(config))
        return cls(store, f"{folder}/{rundir.app_id}", f"{place.rstrip('/')}/{rundir.app_id}", rundir.path)

    # -- reading ---------------------------------------------------------------------------------------

    def newest(self) -> CheckpointCopy | None:
        """The newest checkpoint; None if there is none. Raises SavepointError if it is damaged."""
        for _ in range(_TRIES):
            names = self._checkpoint_names()
            if not names:
                return None
            try:
                return self._decoded(max(names), self._store.get(max(names)))
            except FileNotFoundError:  # there is a newer one by now
                continue
        raise self._replaced_too_fast()

    def begin(self) -> CheckpointCopy | None:
        """The newest checkpoint, with which a new state directory begins.

        A process that was wrongly considered lost may make more checkpoints, and publish their results,
        until `claim`: then the state `is_outdated`.
        """
        newest, self.is_outdated = self.newest(), False
        self._begun = -1 if newest is None else newest.number
        return newest

    def fetch(self, copy: CheckpointCopy, directory: Path) -> None:
        """Write the files of a checkpoint to an empty directory, with its manifest.

        Raises SavepointError if it is damaged, UnavailableError if newer ones have replaced it meanwhile.
        """
        assert copy.manifest is not None
        files = sorted(copy.manifest.files.items(), key=lambda item: copy.places.get(item[1].sha256, ("", 0)))
        pack, content = "", b""
        try:
            for name, file in files:
                place, start = copy.places[file.sha256]
                if place != pack and file.size:
                    pack, content = place, self._store.get(place)
                with writing("the checkpoint that is fetched", directory):
                    (directory / name).parent.mkdir(parents=True, exist_ok=True)
                    (directory / name).write_bytes(content[start : start + file.size])
        except (FileNotFoundError, KeyError) as error:
            if self._has_later(copy.number):
                raise self._replaced_too_fast() from error
            raise self._damaged(self._name(copy.number), f"no {error}") from error
        write_manifest(directory, copy.manifest)

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
            raise self._other_state(newest)
        if newest.owner != claim.owner and newest.number != claim.after:
            raise self._taken(newest)

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
        none. Returns whether the newest is another process's, which may still run for a while. Raises
        TakenOverError.
        """
        claim = self._claim.read()
        if claim is not None:
            return self._claim_next(claim, self.newest(), starts_over=starts_over)
        owner, tries = uuid.uuid4().hex, _TRIES
        while True:
            newest, tries = self.newest(), tries - 1
            last = -1 if newest is None else newest.number
            claim = Claim(owner, last)
            self._claim.write(claim)
            self.is_outdated = not starts_over and self._begun not in (None, last)
            try:
                return self._claim_next(claim, newest, starts_over=starts_over)
            except TakenOverError:  # the former process was faster; nothing was computed from this state
                if not tries:
                    raise

    def _claim_next(self, claim: Claim, newest: CheckpointCopy | None, *, starts_over: bool) -> bool:
        self._owner, self._last = claim.owner, newest
        if newest is None:
            self._create(CheckpointCopy(**self._signed(claim.after + 1), manifest=None))
            return False
        is_others = newest.owner != claim.owner
        if is_others:
            if newest.number != claim.after:
                raise self._taken(newest)
            if starts_over:
                newest = msgspec.structs.replace(newest, manifest=None, places={}, packs={})
            self._create(msgspec.structs.replace(newest, **self._signed(newest.number + 1)))
        assert self._last is not None
        self._sweep(self._last)
        return is_others

    def add(
        self,
        files: Iterable[tuple[str, Path]],
        manifest: Callable[[Mapping[str, SavedFile]], Manifest],
    ) -> int:
        """Copy a checkpoint, whose results may be published afterwards; returns how many bytes were sent.

        `files` are its files by name, `manifest` makes its manifest. Raises TakenOverError, OutputError and
        UnavailableError; then nothing may be published.
        """
        last = self._last
        number = 0 if last is None else last.number + 1
        prefix = f"{self._packs}/{self._owner}/{number:020d}-{uuid.uuid4().hex[:8]}"
        packing = PackBuilder(self._store, prefix, _kept(last), self._hashes)
        try:
            for name, path in files:
                packing.take(name, path)
            packing.finish()
        finally:
            self._made |= packing.sizes.keys()
        self._hashes = packing.hashes
        maybe_crash(CrashPoint.COPY_UPLOADED)
        places = {file.sha256: packing.places[file.sha256] for file in packing.files.values()}
        sizes = packing.sizes if last is None else last.packs | packing.sizes
        made = CheckpointCopy(
            **self._signed(number),
            manifest=manifest(packing.files),
            places=places,
            packs={pack: sizes[pack] for pack, _ in places.values() if pack},
        )
        self._create(made)
        maybe_crash(CrashPoint.COPY_NAMED)
        self._forget_older(made.packs.keys() | (set() if last is None else last.packs.keys()))
        return sum(packing.sizes.values())

    def _signed(self, number: int) -> dict[str, Any]:
        now_ms = time.time_ns() // 1_000_000
        return {"number": number, "owner": self._owner, "host": socket.gethostname(), "made_at_ms": now_ms}

    def _create(self, copy: CheckpointCopy) -> None:
        """Create a checkpoint's object, and make it the last one."""
        encoded = msgspec.json.encode(copy)
        envelope = _Envelope(msgspec.Raw(encoded), hashlib.sha256(encoded).hexdigest())
        if not self._store.put_if_absent(self._name(copy.number), msgspec.json.encode(envelope)):
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

    # -- deleting --------------------------------------------------------------------------------------

    def _forget_older(self, needed: Collection[str]) -> None:
        """Delete what neither the last checkpoint nor the one before it needs: a process may be reading the
        latter."""
        older, self._numbers = self._numbers[:-2], self._numbers[-2:]
        self._delete([*map(self._name, older), *(self._made - set(needed))])
        self._made &= set(needed)

    def _sweep(self, last: CheckpointCopy) -> None:
        """Delete what former processes have left; only for the process that has claimed a number."""
        newest = self._name(last.number)
        self._delete([name for name in self._checkpoint_names() if name < newest])
        self._delete([pack for pack in self._names_in(self._packs) if pack not in last.packs])
        self._made, self._numbers = set(last.packs), [last.number]

    def _delete(self, paths: Iterable[str]) -> None:
        try:
            for path in paths:
                self._store.delete(path)
        except (DrivetrainError, PermissionError):
            return  # the next process that claims a number sweeps it up

    # -- parts -----------------------------------------------------------------------------------------

    def _name(self, number: int) -> str:
        return f"{self._checkpoints}/{number:020d}.json"

    def _names_in(self, folder: str, after: str = "") -> list[str]:
        return [found.path for page in self._store.pages(folder, after) for found in page]

    def _checkpoint_names(self, after: str = "") -> list[str]:
        """The names of checkpoints, without other files in the folder: backups, notes."""
        start = len(self._checkpoints) + 1
        return [name for name in self._names_in(self._checkpoints, after) if _NAME.fullmatch(name[start:])]

    def _has_later(self, number: int) -> bool:
        return bool(self._checkpoint_names(self._name(number)))

    def _decoded(self, name: str, content: bytes) -> CheckpointCopy:
        try:
            envelope = msgspec.json.decode(content, type=_Envelope)
            if hashlib.sha256(bytes(envelope.copy)).hexdigest() != envelope.sha256:
                raise self._damaged(name, "another hash than its own")
            return msgspec.json.decode(envelope.copy, type=CheckpointCopy)
        except msgspec.DecodeError as error:
            raise self._damaged(name, str(error)) from error

    def _replaced_too_fast(self) -> UnavailableError:
        return UnavailableError(
            "the newest checkpoint is replaced faster than it is read",
            where=self.place,
            remedy="end the process that runs the application",
        )

    def _damaged(self, name: str, got: str) -> SavepointError:
        return SavepointError(
            "the copy of a checkpoint is damaged or incomplete",
            where=f"{self.place}: {name}",
            got=got,
            remedy="start from a savepoint, or start over with --fresh",
        )

    def _taken(self, newest: CheckpointCopy | None) -> TakenOverError:
        return TakenOverError(
            "another process has continued this application from its copied checkpoint",
            where=self.place,
            got="it is gone" if newest is None else f"checkpoint number {newest.number}, by {newest.host}",
            remedy=IF_TAKEN_OVER,
        )

    def _other_state(self, newest: CheckpointCopy) -> TakenOverError:
        return TakenOverError(
            "the state here is not what the application's copied checkpoint continues",
            where=self.place,
            got=f"checkpoint number {newest.number}, by {newest.host}",
            remedy="to continue from the copy, delete this application's state directory on this machine; to "
            "continue from the state here, delete the copies, or copy to another place",
        )


def _kept(copy: CheckpointCopy | None) -> dict[str, tuple[str, int]]:
    if copy is None or copy.manifest is None:
        return {}
    return kept_places(copy.manifest.files, copy.places, copy.packs)
