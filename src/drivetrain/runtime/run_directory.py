"""The state directory of one application, and whether a run continues an earlier one.

    <state.dir>/<application>-<8 hex digits of its settings>/
        application.json     name, settings, the shape of its graph, its life, finished or not
        lock                 held by the process that runs it, or shared by its executors
        prepared.json        for executors: who prepared it, and channels' schemas: see `preparation`
        control              the socket of the run: see `control_socket`
        last-run.json        how the last run ended, unless it was killed: see `last_run`
        clearing             only while everything else is being deleted: the next run completes that first
        fragments/<id>/      Spark's checkpoint, the clock, the sources' own files, and its lock
        channels/<id>/       see `channel`
        checkpoints/         see `checkpoints.transaction_file`
        lives/<n>/           what a life that began with a replay has of these: see `core.replay`
        stores/<id>/         messages of one-pass sources: a channel for all lives
        sources/, sinks/<id>/  what sources record about their messages, and sinks' own notes, for all lives
        savepoints-wanted/   requests to the run: see `checkpoints.savepoint_requests`
        late-messages/<id>.json  samples of late messages: see `late_samples`
        dead-letters/<id>/   messages that could not be processed, in any life: see `dead_letters`
        versions/<n>         the graphs that have run here: see `graph_versions`; and see `scalings`

The settings are part of the name: the same command finds its state again, another input or output starts
another application. application.json and prepared.json are durable files. A new life is prepared in its own
directory, and begins with the one step that replaces application.json; the next process that locks the
directory deletes what is left of earlier ones.

Invariants:

1. One process at a time runs an application, or several executors that share it: an advisory lock that
   ends with its holders.
2. One attempt at a time runs a fragment, in any process: see `fragment_lock`.
3. A state directory is never continued with a graph whose stateful parts differ.
4. Nothing is read while users other than its owner, or those that `state.writers` names, can write here.
5. No process clears it, or prepares it, while others run fragments of it.
6. After a crash at any moment the current life is complete, and it is the old one or the new one.

Called by `embedded` (acquire) and by executors through `execution` (share).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from drivetrain.core.change.graph_version import GraphVersion, state_fits, state_shape
from drivetrain.core.plan.plan import Plan
from drivetrain.core.replay.replay import FIRST_LIFE, Life
from drivetrain.durable import sync, writing
from drivetrain.errors import DrivetrainError, InputError, UnavailableError, UserError
from drivetrain.file_lock import FileLock
from drivetrain.private_files import Writers, make_private_directory, require_trusted
from drivetrain.runtime.emptied_directory import OWN_LOCK, empty
from drivetrain.runtime.fragment_lock import FragmentLock, is_java_alive
from drivetrain.runtime.fragment_places import FragmentPlaces
from drivetrain.runtime.graph_versions import GraphVersions
from drivetrain.runtime.ownership import Ownership
from drivetrain.runtime.planned_version import planned_version
from drivetrain.runtime.preparation import CLEARING, NO_EXECUTORS, Preparation, Preparer
from drivetrain.runtime.run_notes import notes_in, read_notes, write_notes
from drivetrain.runtime.state.dropped_state import settle_checkpoints

_WAIT_S = 0.05
_OF_A_LIFE = ("fragments", "channels", "checkpoints", "tables", "clock")


class RunDirectory:
    """The state directory of one application."""

    def __init__(
        self,
        state_dir: str,
        application: str,
        settings: Mapping[str, Any],
        writers: Writers = Writers.OWNER,
        submission: str = "",
    ) -> None:
        encoded = json.dumps({k: str(v) for k, v in settings.items()}, sort_keys=True)
        self.app_id = f"{application}-{hashlib.sha256(encoded.encode()).hexdigest()[:8]}"
        self.path = Path(state_dir).resolve() / self.app_id
        self.application = application
        self.settings = dict(settings)
        self.writers = writers
        self._is_trusted = False
        self._lock = FileLock(self.path / OWN_LOCK)
        self.ownership = Ownership(self.app_id, self._lock)
        self._notes = notes_in(self.path)
        self.preparation = Preparation(self.path, submission)
        """The record of what executors have prepared, and for which application master."""
        self._is_forgotten = False
        self._aside: Life | None = None

    # -- locking --------------------------------------------------------------------------------------

    def acquire(self, *, fresh: bool = False) -> None:
        """Create the directory if needed and lock it; `fresh` when it must be cleared.

        Raises `UnavailableError` when another process runs it, `InputError` for damaged notes unless `fresh`.
        """
        if not self._lock_now():
            self.release()
            raise self._taken()
        self._begin(None if fresh else NO_EXECUTORS, fresh=fresh)  # clearing deletes it, even if damaged

    def is_free(self) -> bool:
        """Whether no process runs it; if so, this one holds its lock until `release`, changing nothing."""
        if self._lock_now():
            return True
        self.release()
        return False

    def acquire_or_share(self, preparer: Preparer, wait_s: float, *, fresh: bool = False) -> bool:
        """For executors: lock it to prepare it (True), or share what `preparer` has prepared (False).

        Waits up to `wait_s` for predecessors that are being killed, and before it prepares also for their
        Java processes, which may still commit a batch. Raises `UnavailableError` after that, or if a later
        epoch has prepared it, and `InputError` like `acquire`.
        """
        deadline = time.monotonic() + wait_s
        while True:
            if self._lock_now():
                if self.preparation.by == preparer:
                    self._tidy(fresh=fresh)
                    self.share()
                    return False
                if not is_java_alive(self.path):
                    self._begin(preparer, fresh=fresh)
                    return True
            elif self._lock_now(shared=True):
                if self.preparation.by == preparer:
                    return False
                self.release()
            if time.monotonic() > deadline:
                self.release()
                raise self._taken()
            time.sleep(_WAIT_S)

    def _begin(self, preparer: Preparer | None, *, fresh: bool) -> None:
        """Begin to run or to prepare it: from now on former processes have lost it."""
        try:
            if preparer is not None:
                self.preparation.require_newest(preparer)
            self.ownership.begin()
            self._tidy(fresh=fresh)
            if preparer is not None:
                self.preparation.begin(preparer)
        except DrivetrainError:
            self.release()
            raise

    def share(self) -> None:
        """Share the lock with other executors, after preparing the directory alone."""
        # A process that takes it while it changes prepares or runs the application too, and is waited for.
        self._lock.wait(shared=True)

    def _lock_now(self, *, shared: bool = False) -> bool:
        with self._writing():
            if not self._lock.is_open:
                self._make()
            return self._lock.take(shared=shared)

    def _writing(self) -> AbstractContextManager[None]:
        return writing(
            "the state directory",
            self.path,
            if_refused="choose another with --state-dir or the key state.dir",
        )

    def _make(self) -> None:
        if not self.path.parent.exists():
            make_private_directory(self.path.parent, "the state directory", self.writers)
        self._require_trusted()
        make_private_directory(self.path, "the application's state", self.writers)

    def _require_trusted(self) -> None:
        """Raise `UserError` when other users can write here: parts of a state are code."""
        if not self._is_trusted:
            parent = self.path.parent
            require_trusted(parent, "the state directory", self.writers, sticky_is_enough=True)
            require_trusted(self.path, "the application's state", self.writers)
            self._is_trusted = True

    def _taken(self) -> UnavailableError:
        return UnavailableError(
            "the application is already running",
            where=self.app_id,
            got=self.ownership.holder() or None,
            remedy="wait for it or stop it; other settings or another --state-dir make it another one",
        )

    def _tidy(self, *, fresh: bool) -> None:
        """Complete what a dead process had begun; only the exclusive holder may call it."""
        try:
            if (self.path / CLEARING).exists():
                self.clear()
            self._end_other_lives()
            settle_checkpoints(self.home / "fragments")
        except InputError:
            if not fresh:
                self.release()
                raise
            self._is_forgotten = True  # until it is cleared, which nothing may prevent

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def clear(self) -> None:
        """Delete everything but the locks: start over."""
        with self._writing():
            empty(self.path)
        self._aside, self._is_forgotten = None, False

    # -- lives -----------------------------------------------------------------------------------------

    @property
    def life(self) -> Life:
        """The current life, or the one that is being prepared."""
        known = self._read().get("life", {})
        return self._aside or Life(**known)

    @property
    def home(self) -> Path:
        """The directory of that life's own files."""
        number = self.life.number
        return self.path if number == FIRST_LIFE else self.path / "lives" / str(number)

    def make_aside(self, from_ms: int) -> None:
        """Prepare the life of a replay, to which this object refers until it begins or is abandoned.

        If the application has not run yet, that is its first.
        """
        self._aside = None
        if self.started:
            self._aside = self.life.next(from_ms, self._last_batch())
            if self.home.exists():
                shutil.rmtree(self.home)
        else:
            self._aside = Life(from_ms=from_ms)

    def take_over(self, life: Life) -> None:
        """Empty the directory for a life that comes from elsewhere; this object refers to it from now on.

        It starts with `begin` and `taken_over`. Before that a crash leaves an empty directory.
        """
        self.clear()
        with self._writing():
            (self.path / CLEARING).touch()
            sync(self.path)
        self._aside = life

    @property
    def is_taken_over(self) -> bool:
        """Whether `take_over` has begun, and `taken_over` was not called yet."""
        return (self.path / CLEARING).exists()

    def taken_over(self) -> None:
        """Complete `take_over`: the new life is valid from now on."""
        (self.path / CLEARING).unlink()
        sync(self.path)

    def give_up_aside(self) -> None:
        """Abandon the prepared life, and continue with the current one."""
        if self._aside is not None and self._aside.number != FIRST_LIFE:
            shutil.rmtree(self.home, ignore_errors=True)
        self._aside = None

    def _last_batch(self) -> int:
        """The newest batch of any fragment of the current life."""
        return max(-1, self.places.last_number() - self.life.first_batch - 1)

    def _end_other_lives(self) -> None:
        """Delete the files of lives that are over, or that never began."""
        current = self.life.number
        others = [d for d in self.path.glob("lives/*") if d.name != str(current)]
        if current != FIRST_LIFE:
            others += [self.path / name for name in _OF_A_LIFE]
        for other in others:
            if other.is_file():
                other.unlink()
            else:
                shutil.rmtree(other, ignore_errors=True)

    # -- notes ---------------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """Whether the application has run here before."""
        return bool(self._read())

    @property
    def versions(self) -> GraphVersions:
        """The versions of the graph that have run here."""
        return GraphVersions(self.path, self.writers)

    @property
    def finished(self) -> Mapping[str, Any] | None:
        """The result of the finished run, or None when it has not finished."""
        return self._read().get("finished")

    def refuse_another_graph(self, plan: Plan) -> None:
        """Raise `UserError` if the state here does not fit the graph; a prepared life has no state."""
        if self._read() and self._aside is None and not state_fits(self.state_shape, plan):
            raise UserError(
                "the application's graph has changed, and its state does not fit",
                where=self.app_id,
                got=self.versions.refusals(plan),
                remedy="run with --version in-force to continue as it ran (drivetrain plan FILE --against "
                "APP shows the difference), with --fresh to start over, or with --replay-from to begin a "
                "new life; or use another application name to keep both",
            )

    @property
    def state_shape(self) -> Any:
        """The shape of the graph of Spark's checkpoints (see `graph_version`), after later changes."""
        in_force = self.versions.last_readable()
        if in_force is None or in_force.made_how == "run":
            return self._read().get("state")
        return in_force.state_shape

    def begin(
        self, plan: Plan, version: GraphVersion | None = None, code: bytes | None = None
    ) -> GraphVersion:
        """Note what runs here, before its first batch; a life that was prepared is the current one then.

        The graph's version (None: that of the plan) is recorded if it differs from the last, with its code
        if that can be kept; returns the version in force. Raises `UserError` like `refuse_another_graph`.
        """
        self.refuse_another_graph(plan)
        notes, shape, version = self._read(), self.state_shape, version or planned_version(plan)
        is_new = self.versions.next_number(version) not in self.versions.numbers()
        # A version that is on trial is not new: if it is rolled back, the notes are about the one before.
        if is_new and notes and notes.get("state") != shape:  # before the new version hides that
            write_notes(self._notes, {**notes, "state": shape})
        in_force = self.versions.note(version, code=code)
        if not self.started or self._aside is not None:
            begun = {
                "application": self.application,
                "settings": {k: str(v) for k, v in self.settings.items()},
                "state": state_shape(plan),
                "life": msgspec.to_builtins(self.life),
            }
            write_notes(self._notes, begun)
            self._aside = None
            self._end_other_lives()
        return in_force

    def finish(self, result: Mapping[str, Any]) -> None:
        """Record that the application has finished, and its result."""
        write_notes(self._notes, {**self._read(), "finished": dict(result)})

    def fragment(self, id: str) -> Path:
        """The directory of a fragment."""
        path = self.home / "fragments" / id
        with self._writing():
            path.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def places(self) -> FragmentPlaces:
        """The places of its fragments, for those that start or leave while it runs."""
        return FragmentPlaces(self.home, self.path, self.life.first_batch)

    def fragment_lock(self, id: str) -> FragmentLock:
        """The lock of a fragment; executors hold it while they run it."""
        return FragmentLock(self.fragment(id) / "lock", f"{self.app_id}/{id}")

    def channel(self, id: str) -> str:
        """The place of a channel."""
        return str(self.home / "channels" / id)

    def tables(self, id: str) -> Path:
        """The directory where the reader of a table stores what it read."""
        return self.home / "tables" / id

    def store(self, id: str) -> str:
        """The place of the store at the end of a source."""
        return str(self.path / "stores" / id)

    def source(self, id: str) -> Path:
        """The directory of a source's files for all lives."""
        return self.path / "sources" / id

    def dead_letters(self, id: str) -> str:
        """The place of a fragment's dead letters."""
        return str(self.path / "dead-letters" / id)

    def _read(self) -> dict[str, Any]:
        self._require_trusted()
        return {} if self._is_forgotten else read_notes(self._notes)
