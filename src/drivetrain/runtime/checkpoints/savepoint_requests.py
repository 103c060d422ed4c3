"""Requests a savepoint of an embedded application, from any process of the machine.

Problem: `drivetrain run` has no server, and another process, or another thread of its own, wants a
savepoint.

Design: a folder for requests in the application's directory. A request is a file; the process that runs the
application looks for requests, makes the savepoint in a thread, and answers with another file. The lock of
the directory shows whether a process runs it; if none does, the requester takes the lock and copies the
newest checkpoint itself.

    savepoints-wanted/<id>.json       a request, with its deadline
    savepoints-wanted/<id>.answer     the answer, which the requester deletes

What if we die here: a request past its deadline is dropped; so is an answer that the requester does not take.

Invariants:

1. A savepoint is made by the process that runs the application, or while none does.

Called by `drivetrain.savepoint` (`make_savepoint`) and by `embedded` (`SavepointRequests`).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.api.durations import milliseconds
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.durable import write_whole, writing
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.checkpoints.savepoint import newest_record, refuse_taken, write_savepoint
from drivetrain.runtime.checkpoints.savepoint_manifest import Manifest
from drivetrain.runtime.checkpoints.savepoint_place import savepoint_place
from drivetrain.runtime.checkpoints.stored_savepoint import uploaded_to
from drivetrain.runtime.clock_file import ClockFile
from drivetrain.runtime.error_records import ErrorRecord, error_record
from drivetrain.runtime.find_application import directory_of
from drivetrain.runtime.objects.locations import is_in_object_store
from drivetrain.runtime.state_place import is_remote, state_home

if TYPE_CHECKING:
    from drivetrain.api.application import Application
    from drivetrain.runtime.run_directory import RunDirectory

_FOLDER: Final = "savepoints-wanted"
_LOOK_S: Final = 0.2
_COPY_MS: Final = 3_600_000
"""How long copying may take after the checkpoint is made."""


class _Request(msgspec.Struct, frozen=True):
    place: str
    timeout_ms: int
    deadline_ms: int


class _Answer(msgspec.Struct, frozen=True):
    manifest: Manifest | None = None
    failure: ErrorRecord | None = None


class SavepointRequests:
    """Serves requests to an application of this process; `make` writes a savepoint, returns its manifest."""

    def __init__(self, rundir: RunDirectory, make: Callable[[Path, int], Manifest]) -> None:
        self._folder: Final = rundir.path / _FOLDER
        self._make: Final = make
        self._looked_s = 0.0
        self._threads: list[threading.Thread] = []

    def look(self) -> None:
        """Take new requests; called often, returns at once."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for file in list(self._folder.glob("[!.]*")) if self._folder.is_dir() else ():
            if file.suffix == ".json":
                self._take(file)
            elif time.time() - file.stat().st_mtime > _COPY_MS / 1000:
                file.unlink(missing_ok=True)

    @property
    def is_busy(self) -> bool:
        """Whether a savepoint is being made, for which the run should continue."""
        return any(thread.is_alive() for thread in self._threads)

    def _take(self, file: Path) -> None:
        request = msgspec.json.decode(file.read_bytes(), type=_Request)
        file.unlink()
        if request.deadline_ms < _now_ms():
            return
        thread = threading.Thread(target=self._answer, args=(file, request), name="savepoint", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _answer(self, file: Path, request: _Request) -> None:
        try:
            answer = _Answer(self._make(Path(request.place), request.timeout_ms))
        except Exception as error:  # noqa: BLE001 - sent to the process that asked
            answer = _Answer(failure=error_record(error))
        _write(file.with_suffix(".answer"), answer)


def make_savepoint_of(
    application: Application | str, place: str | None, config: Config | None, timeout: str
) -> tuple[str, Manifest]:
    """The place and the manifest of a new savepoint; see `drivetrain.savepoint`."""
    config = config or Config.load(None, {}, {})
    timeout_ms = milliseconds(timeout, "timeout")
    rundir = directory_of(application, config)
    if place is None and is_remote(config):
        name = savepoint_place("", rundir.app_id)
        place = f"{config[run_keys.STATE_DIR].rstrip('/')}/{name}"
    if place is not None and is_in_object_store(place):
        with uploaded_to(place, config) as directory:
            return place, make_savepoint(rundir, directory, timeout_ms)
    chosen = savepoint_place(state_home(config), rundir.app_id) if place is None else Path(place)
    return str(chosen.absolute()), make_savepoint(rundir, chosen.absolute(), timeout_ms)


def make_savepoint(rundir: RunDirectory, place: Path, timeout_ms: int) -> Manifest:
    """Make a savepoint of an embedded application at `place`, whether or not it runs; waits for it.

    Raises OutputError when the place cannot be used, UserError when the application does not run and its
    newest checkpoint does not hold all of its state, UnavailableError when there is no checkpoint within
    `timeout_ms`.
    """
    refuse_taken(place)
    if not rundir.started:
        raise UserError(
            "the application has no state here",
            where=str(rundir.path),
            remedy="run it, or pass its --state-dir or configuration",
        )
    if rundir.is_free():
        try:
            clock = ClockFile(rundir.home / "clock")
            return write_savepoint(rundir, place, lambda: newest_record(rundir), clock.read)
        finally:
            rundir.release()
    return _asked(rundir, place, timeout_ms)


def _asked(rundir: RunDirectory, place: Path, timeout_ms: int) -> Manifest:
    folder = rundir.path / _FOLDER
    folder.mkdir(exist_ok=True)
    request = folder / f"{uuid.uuid4().hex}.json"
    answered = request.with_suffix(".answer")
    deadline_ms = _now_ms() + timeout_ms
    _write(request, _Request(str(place), timeout_ms, deadline_ms))
    try:
        while not answered.exists():
            if request.exists() and _now_ms() > deadline_ms:
                raise _no_answer(rundir, f"it has not taken the request within {timeout_ms / 1000:g} s")
            if not answered.exists() and rundir.is_free():
                rundir.release()
                raise _no_answer(rundir, "it has ended meanwhile")
            time.sleep(_LOOK_S / 2)
        answer = msgspec.json.decode(answered.read_bytes(), type=_Answer)
    finally:
        request.unlink(missing_ok=True)
        answered.unlink(missing_ok=True)
    if answer.manifest is None:
        assert answer.failure is not None
        raise answer.failure.error()
    return answer.manifest


def _no_answer(rundir: RunDirectory, why: str) -> UnavailableError:
    return UnavailableError(
        f"the application has taken no savepoint: {why}",
        where=rundir.app_id,
        remedy="try again; use --masters for an application in a cluster",
    )


def _write(file: Path, content: _Request | _Answer) -> None:
    with writing("a request for a savepoint", file):
        write_whole(file, msgspec.json.encode(content), synced=False)  # not needed after a power cut


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
