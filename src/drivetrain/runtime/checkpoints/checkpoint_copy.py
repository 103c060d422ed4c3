"""One checkpoint as an object in a store, and the errors of who reads it.

Called by `copied_checkpoints` and by what handles `TakenOverError`.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import msgspec

from drivetrain.errors import InputError, UnavailableError
from drivetrain.runtime.checkpoints.savepoint_manifest import Manifest, SavedFile, SavepointError

IF_TAKEN_OVER: Final = (
    "leave it to that process; to continue here, end it, and delete this application's state directory on "
    "this machine"
)
"""The remedy of a `TakenOverError`."""
_IF_STATE_TAKEN_OVER: Final = "leave it to that process; once that has ended, the same command continues here"


class TakenOverError(UnavailableError):
    """Another process continues the application from a copy of its checkpoint."""

    code = "taken-over"


class StillRunningError(UnavailableError):
    """The process that has the application runs."""


class CheckpointCopy(msgspec.Struct, frozen=True):
    """One checkpoint in the store.

    `series_ms` is when the numbers began, in milliseconds since 1970. `manifest` is None when the application
    starts over with this number. `places` has, by the SHA-256 of a file, its pack and where it begins there;
    `packs` the sizes of all packs that are needed. `is_finished` is whether the application has finished
    after it. `submission` and `epoch` are those of a `Claimant`.

    `changes` are the files of `change_files`, by name, which are in packs, too; `changed_by` is the
    submission of the process that copied them.
    """

    number: int
    owner: str
    host: str
    made_at_ms: int
    series_ms: int
    manifest: Manifest | None
    places: dict[str, tuple[str, int]] = {}
    packs: dict[str, int] = {}
    is_finished: bool = False
    submission: str = ""
    epoch: int = 0
    changes: dict[str, SavedFile] = {}
    changed_by: str = ""


class Claimant(NamedTuple):
    """Which application master of a cluster, by the epoch of its submission, a process claims a state for.

    The leader replaces one epoch by the next: then nobody has to wait for a lease. A process that runs an
    application by itself has no submission.
    """

    submission: str = ""
    epoch: int = 0

    def replaces(self, copy: CheckpointCopy) -> bool:
        """Whether the leader has replaced the process that made a copy, so that this one may continue."""
        return self.is_of(copy) and copy.epoch <= self.epoch

    def is_replaced(self, copy: CheckpointCopy) -> bool:
        """Whether a copy is of the epoch that has replaced this one."""
        return self.is_of(copy) and copy.epoch > self.epoch

    def is_of(self, copy: CheckpointCopy) -> bool:
        """Whether a process of the same submission made a copy."""
        return self.submission != "" and copy.submission == self.submission


class _Envelope(msgspec.Struct):
    copy: msgspec.Raw
    sha256: str


def encoded(copy: CheckpointCopy) -> bytes:
    """The content of a checkpoint's object."""
    content = msgspec.json.encode(copy)
    return msgspec.json.encode(_Envelope(msgspec.Raw(content), hashlib.sha256(content).hexdigest()))


def decoded(content: bytes, where: str) -> CheckpointCopy:
    """The checkpoint of an object, which `where` names; raises SavepointError if it is damaged."""
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
        if hashlib.sha256(bytes(envelope.copy)).hexdigest() != envelope.sha256:
            raise damaged_copy(where, "another hash than its own")
        return msgspec.json.decode(envelope.copy, type=CheckpointCopy)
    except msgspec.DecodeError as error:
        raise damaged_copy(where, str(error)) from error


def damaged_copy(where: str, got: str) -> SavepointError:
    """The error for a copy that cannot be read."""
    return SavepointError(
        "the copy of a checkpoint is damaged or incomplete",
        where=where,
        got=got,
        remedy="start from a savepoint, or start over with --fresh",
    )


def replaced_too_fast(place: str) -> UnavailableError:
    """The error when no checkpoint stays long enough to be read."""
    return UnavailableError(
        "the newest checkpoint is replaced faster than it is read",
        where=place,
        remedy="end the process that runs the application",
    )


def taken_over(place: str, newest: CheckpointCopy | None, *, is_state: bool) -> TakenOverError:
    """The error when another process has made the newest checkpoint; `is_state` if copies are the state."""
    return TakenOverError(
        "another process has continued this application from its copied checkpoint",
        where=place,
        got="it is gone" if newest is None else f"checkpoint number {newest.number}, by {newest.host}",
        remedy=_IF_STATE_TAKEN_OVER if is_state else IF_TAKEN_OVER,
    )


def other_state(place: str, newest: CheckpointCopy) -> TakenOverError:
    """The error when the state of this machine was never copied, and there are copies."""
    return TakenOverError(
        "the state here is not what the application's copied checkpoint continues",
        where=place,
        got=f"checkpoint number {newest.number}, by {newest.host}",
        remedy="to continue from the copy, delete this application's state directory on this machine; to "
        "continue from the state here, delete the copies, or copy to another place",
    )


def running(place: str, got: str) -> StillRunningError:
    """The error when the process that has the application runs."""
    return StillRunningError(
        "the application is already running",
        where=place,
        got=got,
        remedy="wait for it or stop it; other settings or another --state-dir make it another one",
    )


def state_gone(place: str) -> InputError:
    """The error when the store has nothing of an application whose state was there."""
    return InputError(
        "the application's state is no longer in the store, though it was",
        where=place,
        got="no checkpoint",
        remedy="bring the objects back, or name the right place; or delete what the application has "
        "published in object stores, and start over with --fresh",
    )
