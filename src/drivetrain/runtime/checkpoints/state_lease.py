"""The lease of a process on an application's state in an object store.

Problem: a lock on a file ends with its holder; an object has no holder. Numbered checkpoints keep a process
that was replaced from making another one, but they would let anyone replace a process that runs well.

Design: the process that has claimed the newest number writes an object of its own again and again, with
another text each time. A process that wants the state reads the object of the newest number's owner: if it
does not change for `LEASE_S`, or says that the process has ended, the process may be replaced. Only durations
of the reader's own clock count. The lease decides nothing: a process that sleeps through its lease and wakes
fails to create its next checkpoint, as without one.

    <place>/<application>/leases/<owner>.json

What if we die here: the lease expires. Leases of former processes are deleted when the next one claims its
number; one that a former process writes later is read by nobody.

Invariants:

1. A process that renews its lease within `LEASE_S` is not replaced.
2. A state whose process is dead can be had `LEASE_S` after it was asked for, at the latest.

Called by `copied_checkpoints`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from typing import Final

import msgspec

from drivetrain.errors import DrivetrainError
from drivetrain.runtime.checkpoints.checkpoint_copy import running
from drivetrain.runtime.objects.object_store import ObjectStore

RENEW_S: Final = 5.0
LEASE_S: Final = 15.0
"""How long a lease holds after it was renewed."""
RETRY_MS: Final = 5_000
"""How long a request about a lease is tried: there is soon another one."""
_LOOK_S: Final = 1.0


class LeaseNote(msgspec.Struct, frozen=True):
    """What a process writes: where it runs, another `beat` each time, and whether it has ended."""

    host: str
    pid: int
    beat: str
    is_over: bool = False


class StateLease:
    """The leases of one application, below `folder` of a store; `place` names it in errors."""

    def __init__(self, store: ObjectStore, folder: str, place: str) -> None:
        self._store: Final = store
        self._folder: Final = f"{folder}/leases".lstrip("/")
        self._place: Final = place
        self._owner: str | None = None
        self._is_answered = True

    def begin(self, owner: str) -> None:
        """Hold the lease as `owner`, who has the newest number, from now on."""
        self._owner = owner
        self.renew()
        own = self._name(owner)
        for page in self._store.pages(self._folder):
            for found in page:
                if found.path != own:
                    self._store.delete(found.path)

    def renew(self) -> None:
        """Hold the lease for longer, if it was begun; raises the store's errors."""
        if self._owner is not None:
            self._write(self._owner, is_over=False)

    def end(self) -> None:
        """Say that this process has ended, unless the store did not answer last: then the lease expires."""
        owner, self._owner = self._owner, None
        if owner is None or not self._is_answered:
            return
        try:
            self._write(owner, is_over=True)
        except (DrivetrainError, PermissionError):
            return  # it expires

    def wait_until_over(self, owner: str) -> bool:
        """Wait until the process `owner` may be replaced; returns whether it has certainly ended.

        Raises UnavailableError when it runs.
        """
        note, until_s, is_expired = self._read(owner), time.monotonic() + LEASE_S, False
        while not is_expired and not (note is not None and note.is_over):
            time.sleep(_LOOK_S)
            # Before it reads: this process may be suspended, too, and must then look once more.
            before, is_expired = note, time.monotonic() >= until_s
            note = self._read(owner)
            if note is not None and not note.is_over and note != before:
                raise running(self._place, f"process {note.pid} on {note.host}")
        return note is not None and note.is_over

    def _name(self, owner: str) -> str:
        return f"{self._folder}/{owner}.json"

    def _read(self, owner: str) -> LeaseNote | None:
        """The note of a process; None if there is none that can be read: it has not written one yet, or is of
        a version without leases."""
        try:
            return msgspec.json.decode(self._store.get(self._name(owner)), type=LeaseNote)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _write(self, owner: str, *, is_over: bool) -> None:
        self._is_answered = False
        note = LeaseNote(socket.gethostname(), os.getpid(), uuid.uuid4().hex, is_over)
        self._store.put(self._name(owner), msgspec.json.encode(note))
        self._is_answered = True
