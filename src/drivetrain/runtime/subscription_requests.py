"""The requests of readers to an application that runs in a cluster, as files in its state directory.

    <state directory>/subscriptions-wanted/<reader>.<source>    what a reader asks for, again and again
    <state directory>/subscriptions-refused/<reader>.<source>   why it was refused

Problem: an application in a cluster has no socket, and its reader may run anywhere that reaches the state
directory, with or without a cluster. Each may die between any two steps.

Design: the reader chooses a key, writes what it wants, and counts on while it waits. The application master
makes a version with the subscription (`core.change.subscription_request_queue`). The reader finds it among
those in force, which is the only answer, notes it, and then withdraws its request.

What if we die here: a reader that asks again keeps the key of its request, as nothing was read with it yet.
A request whose reader has died is forgotten by nobody, and begins nothing; the next start of the reader
takes it up.

Invariants:

1. No message is read with a key while there is a request with that key.
2. Only the reader writes and withdraws what it wants, except that the application master forgets what has
   ended; only the application master refuses.

Called by `runtime.outside_producer` (reader) and `cluster.app_master.stream.stored_subscriptions`.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.change.graph_version import SubscriptionRecord
from drivetrain.core.change.subscription_request_queue import WantedSubscription
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.durable import writing
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.private_files import Writers, make_private_directory
from drivetrain.runtime.durable_file import DurableFile
from drivetrain.runtime.error_records import ErrorRecord, error_record

WANTED: Final = "subscriptions-wanted"
REFUSED: Final = "subscriptions-refused"
_IF_FULL: Final = "make room; the reader asks again"


class _Refusal(msgspec.Struct, frozen=True):
    """Why the request with this key was refused."""

    key: str
    why: ErrorRecord


class SubscriptionRequests:
    """The requests in the state directory `state` of an application, which `writers` may write."""

    def __init__(self, state: Path, writers: Writers = Writers.OWNER) -> None:
        self._state: Final = state
        self._writers: Final = writers

    # -- the reader ------------------------------------------------------------------------------------

    def ask(self, wanted: SubscriptionRecord) -> WantedSubscription:
        """Ask for a subscription, once more; the key is that of the request that is there, or a new one.

        Raises DiskFullError and OutputError.
        """
        before = self._read(wanted.id)
        if before is not None and not before.ends and before.is_same(wanted):
            return self._write(msgspec.structs.replace(before, beat=before.beat + 1))
        self._remove(REFUSED, wanted.id)
        made = msgspec.structs.replace(wanted, key=secrets.token_hex(4))
        return self._write(WantedSubscription(made))

    def ask_to_end(self, of: SubscriptionRecord) -> None:
        """Have a subscription end; raises as `ask`."""
        self._write(WantedSubscription(of, ends=True))

    def refusal(self, wanted: WantedSubscription) -> DrivetrainError | None:
        """Why a request was refused; None if it was not."""
        refused = self._refused(wanted.of.id)
        return refused.why.error() if refused is not None and refused.key == wanted.of.key else None

    def withdraw(self, id: str) -> None:
        """The request of a source is no longer needed; raises as `ask`."""
        self._remove(WANTED, id)
        self._remove(REFUSED, id)

    # -- the application master ------------------------------------------------------------------------

    def all(self) -> tuple[WantedSubscription, ...]:
        """All requests that can be read; one that is damaged is written again by its reader."""
        try:
            names = sorted(path.name for path in (self._state / WANTED).iterdir())
        except OSError:
            return ()
        found = [self._read(name) for name in names if not name.startswith(".")]
        return tuple(wanted for wanted in found if wanted is not None)

    def refused(self) -> frozenset[tuple[str, str]]:
        """The names of the requests that were refused."""
        try:
            names = [path.name for path in (self._state / REFUSED).iterdir()]
        except OSError:
            return frozenset()
        found = {name: self._refused(name) for name in names if not name.startswith(".")}
        return frozenset((id, refused.key) for id, refused in found.items() if refused is not None)

    def refuse(self, wanted: WantedSubscription, why: Exception) -> None:
        """Refuse a request; raises as `ask`."""
        self._put(REFUSED, wanted.of.id, msgspec.json.encode(_Refusal(wanted.of.key, error_record(why))))

    def forget(self, wanted: WantedSubscription) -> None:
        """The subscription of a request has ended; one for another is left. Raises as `ask`."""
        now = self._read(wanted.of.id)
        if now is not None and (now.ends, now.of.key) == (True, wanted.of.key):
            self._remove(WANTED, wanted.of.id)

    # -- files -----------------------------------------------------------------------------------------

    def _write(self, wanted: WantedSubscription) -> WantedSubscription:
        self._put(WANTED, wanted.of.id, msgspec.json.encode(wanted))
        maybe_crash(CrashPoint.SUBSCRIPTION_ASKED)
        return wanted

    def _put(self, folder: str, id: str, content: bytes) -> None:
        with writing("a subscription", self._state / folder, if_full=_IF_FULL):
            make_private_directory(self._state / folder, "the requests of readers", self._writers)
        self._file(folder, id).write(content)

    def _remove(self, folder: str, id: str) -> None:
        file = self._file(folder, id)
        if file.path.exists():
            file.remove()

    def _read(self, id: str) -> WantedSubscription | None:
        with suppress(InputError, msgspec.MsgspecError):
            content = self._file(WANTED, id).read()
            if content is not None:
                found = msgspec.json.decode(content, type=WantedSubscription)
                return found if found.of.id == id and found.of.is_well_named else None
        return None

    def _refused(self, id: str) -> _Refusal | None:
        with suppress(InputError, msgspec.MsgspecError):
            content = self._file(REFUSED, id).read()
            return None if content is None else msgspec.json.decode(content, type=_Refusal)
        return None

    def _file(self, folder: str, id: str) -> DurableFile:
        return DurableFile(
            self._state / folder / id,
            "what another application asks for",
            if_damaged="delete it: its reader asks again",
            if_full=_IF_FULL,
        )
