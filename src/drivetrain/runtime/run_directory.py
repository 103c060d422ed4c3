"""Where one application keeps what must survive it, and how a run knows that it goes on.

    <state.dir>/<application>-<8 hex digits of its settings>/
        application.json     what runs here: name, settings, the shape of its graph, its life, finished or not
        lock                 held by the process that runs it, or shared by the executors that do
        prepared.json        for executors: who has prepared the application, and what its channels carry
        clearing             only while everything else is being deleted: the next run ends that first
        fragments/<id>/      Spark's checkpoint, the clock, the sources' own files, and its lock
        channels/<id>/       see `channel`
        lives/<n>/           fragments and channels of a life that began with a replay (see
        `core.replay.replay`) stores/<id>/         messages of sources that cannot be asked twice: a channel
        for all lives sources/<id>/        what sources know of their messages, for all lives
        sinks/<id>/          the sinks' own notes, for all lives
        savepoints-wanted/   what others ask of the run: see `checkpoints.savepoint_requests`
        dead-letters/<id>/   messages that could not be processed, in whatever life: see `dead_letters`

The settings are part of the name, so the same command finds its state again and another input or
output starts another application. application.json and prepared.json are durable files: after a crash
each is the old one or the new one, and one that was damaged is not believed. A life is made aside, and
begins with the one step that replaces application.json; what an earlier one has left is deleted after
that, by whoever locks the directory next if not at once.

Invariants:

1. One process at a time runs an application, or several executors that share it: an advisory lock that
   dies with its holders.
2. One attempt at a time runs a fragment, in whatever process: see `fragment_lock`.
3. A state directory is never continued with a graph whose stateful parts differ.
4. Nothing is read while others than its owner, or those whom `state.writers` names, can write here.
5. Nobody clears it, or prepares it, while others run fragments of it.
6. After a crash at any moment the current life is whole, and it is the old one or the new one.

Called by `embedded` (acquire) and by executors through `execution` (share).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from drivetrain.core.plan.plan import Plan
from drivetrain.core.replay.replay import FIRST_LIFE, Life
from drivetrain.errors import InputError, UnavailableError, UserError
from drivetrain.private_files import Writers, make_private_directory, require_trusted
from drivetrain.runtime.durable import sync, writing
from drivetrain.runtime.file_lock import FileLock
from drivetrain.runtime.fragment_lock import FragmentLock
from drivetrain.runtime.run_notes import durable_notes, notes_in, read_notes, write_notes

_WAIT_S = 0.05
_OF_A_LIFE = ("fragments", "channels", "tables", "clock")


class RunDirectory:
    """The state directory of one application."""

    def __init__(
        self,
        state_dir: str,
        application: str,
        settings: Mapping[str, Any],
        writers: Writers = Writers.OWNER,
    ) -> None:
        told = json.dumps({k: str(v) for k, v in settings.items()}, sort_keys=True)
        self.app_id = f"{application}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"
        self.path = Path(state_dir).resolve() / self.app_id
        self.application = application
        self.settings = dict(settings)
        self.writers = writers
        self._is_trusted = False
        self._lock = FileLock(self.path / "lock")
        self._notes = notes_in(self.path)
        self._preparation = durable_notes(
            self.path / "prepared.json",
            "what executors have prepared",
            "delete the file and start the application again: it is made anew",
        )
        self._is_forgotten = False
        self._aside: Life | None = None

    # -- locking --------------------------------------------------------------------------------------

    def acquire(self, *, fresh: bool = False) -> None:
        """Create the directory if needed and lock it; `fresh` when it is to be cleared.

        Raises `UnavailableError` when another runs it, and unless `fresh` `InputError` for damaged notes.
        """
        if not self._lock_now():
            self.release()
            raise self._taken()
        self._tidy(fresh=fresh)

    def is_free(self) -> bool:
        """Whether nobody runs it; then this process holds its lock until `release`, and changes nothing."""
        if self._lock_now():
            return True
        self.release()
        return False

    def acquire_or_share(self, preparer: str, wait_s: float, *, fresh: bool = False) -> bool:
        """For executors: lock it to prepare it (True), or share what `preparer` has prepared (False).

        Waits up to `wait_s` for predecessors that are being killed. Raises `UnavailableError` after that, and
        `InputError` as `acquire`.
        """
        deadline = time.monotonic() + wait_s
        while True:
            if self._lock_now():
                self._tidy(fresh=fresh)
                if self.prepared_by != preparer:
                    return True
                self.share()
                return False
            if self._lock_now(shared=True):
                if self.prepared_by == preparer:
                    return False
                self.release()
            if time.monotonic() > deadline:
                self.release()
                raise self._taken()
            time.sleep(_WAIT_S)

    def share(self) -> None:
        """Let other executors in, after having prepared it alone."""
        # Whoever gets in between, while the lock changes, prepares or runs it as well and will be waited for.
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
        """Raise `UserError` when others can write here: parts of a state are code."""
        if not self._is_trusted:
            parent = self.path.parent
            require_trusted(parent, "the state directory", self.writers, sticky_is_enough=True)
            require_trusted(self.path, "the application's state", self.writers)
            self._is_trusted = True

    def _taken(self) -> UnavailableError:
        return UnavailableError(
            "the application is already running",
            where=self.app_id,
            remedy="wait for it or stop it; other settings or another --state-dir make it another one",
        )

    def _tidy(self, *, fresh: bool) -> None:
        """End what a process that died had begun; only who is alone here may."""
        try:
            if (self.path / "clearing").exists():
                self.clear()
            self._end_other_lives()
        except InputError:
            if not fresh:
                self.release()
                raise
            self._is_forgotten = True  # until it is cleared, which nothing must keep it from

    def release(self) -> None:
        """Let another process run the application."""
        self._lock.release()

    def clear(self) -> None:
        """Forget everything but the lock: start over."""
        marker = self.path / "clearing"
        with self._writing():
            marker.touch()  # half a state is worse than none: a crash from here on must not leave one
            sync(self.path)
            for child in self.path.iterdir():
                if child.name in ("lock", marker.name):
                    continue
                if child.is_dir():
                    shutil.rmtree(child)
                else:
                    child.unlink()
            marker.unlink()
            sync(self.path)
        self._aside, self._is_forgotten = None, False

    # -- lives -----------------------------------------------------------------------------------------

    @property
    def life(self) -> Life:
        """The life that runs here, or the one that is made aside."""
        known = self._read().get("life", {})
        return self._aside or Life(**known)

    @property
    def home(self) -> Path:
        """Where that life keeps what is its own."""
        number = self.life.number
        return self.path if number == FIRST_LIFE else self.path / "lives" / str(number)

    def make_aside(self, from_ms: int) -> None:
        """Make the life of a replay from `from_ms`: this object speaks of it, until it begins or is given up.

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
        """Empty the directory for a life that comes from elsewhere: this object speaks of it from now on.

        It begins with `begin` and `taken_over`. Before that a crash leaves an empty directory.
        """
        self.clear()
        with self._writing():
            (self.path / "clearing").touch()
            sync(self.path)
        self._aside = life

    @property
    def is_taken_over(self) -> bool:
        """Whether `take_over` has begun, and `taken_over` was not called yet."""
        return (self.path / "clearing").exists()

    def taken_over(self) -> None:
        """What `take_over` has begun is there, and counts."""
        (self.path / "clearing").unlink()
        sync(self.path)

    def give_up_aside(self) -> None:
        """Go on with the life that was there."""
        if self._aside is not None and self._aside.number != FIRST_LIFE:
            shutil.rmtree(self.home, ignore_errors=True)
        self._aside = None

    def _last_batch(self) -> int:
        """The newest batch that Spark has numbered for any fragment of the life that runs here."""
        logs = (self.home / "fragments").glob("*/checkpoint/offsets/*")
        return max((int(path.name) for path in logs if path.name.isdigit()), default=-1)

    def _end_other_lives(self) -> None:
        """Delete what belongs to lives that are over, or that never began."""
        current = self.life.number
        others = [d for d in self._directories("lives") if d.name != str(current)]
        if current != FIRST_LIFE:
            others += [self.path / name for name in _OF_A_LIFE]
        for other in others:
            if other.is_file():
                other.unlink()
            else:
                shutil.rmtree(other, ignore_errors=True)

    def _directories(self, name: str) -> Iterable[Path]:
        parent = self.path / name
        return parent.iterdir() if parent.is_dir() else ()

    # -- what is known -------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """Whether the application has run here before."""
        return bool(self._read())

    @property
    def known(self) -> Mapping[str, Any]:
        """What was noted of the application when it began: its name, settings, shape and life."""
        return self._read()

    @property
    def finished(self) -> Mapping[str, Any] | None:
        """What the finished run said of itself, or None when it has not finished."""
        return self._read().get("finished")

    @property
    def prepared_by(self) -> str | None:
        """Who prepared the application for executors last; None when nobody did since it was cleared."""
        return self._prepared().get("by")

    def prepared_schemas(self) -> Mapping[str, Any]:
        """The schemas of all channels, as Spark's JSON, that `prepare` was given."""
        return dict(self._prepared().get("schemas", {}))

    def note_prepared(self, preparer: str, schemas: Mapping[str, Any]) -> None:
        """Say that executors of `preparer` may run fragments, and what the channels between them carry."""
        write_notes(self._preparation, {"by": preparer, "schemas": dict(schemas)})

    def refuse_another_graph(self, plan: Plan) -> None:
        """Raise `UserError` if there is state here of a graph that does not fit; a life aside has none."""
        shape, known = state_shape(plan), self._read()
        if known and self._aside is None and known.get("state") != shape:
            raise UserError(
                "the application's graph has changed since its state was written",
                where=self.app_id,
                expected=_told(known.get("state", {})),
                got=_told(shape),
                remedy="run with --fresh to start over, with --replay-from to begin a new life, or under "
                "another application name to keep both",
            )

    def begin(self, plan: Plan) -> None:
        """Note what runs here, before its first batch; a life that was made aside is the current one then.

        Raises `UserError` as `refuse_another_graph`.
        """
        self.refuse_another_graph(plan)
        if not self.started or self._aside is not None:
            write_notes(
                self._notes,
                {
                    "application": self.application,
                    "settings": {k: str(v) for k, v in self.settings.items()},
                    "state": state_shape(plan),
                    "life": msgspec.to_builtins(self.life),
                },
            )
            self._aside = None
            self._end_other_lives()

    def finish(self, result: Mapping[str, Any]) -> None:
        """Note that the application has finished, and how."""
        write_notes(self._notes, {**self._read(), "finished": dict(result)})

    def fragment(self, id: str) -> Path:
        """The directory of a fragment."""
        path = self.home / "fragments" / id
        with self._writing():
            path.mkdir(parents=True, exist_ok=True)
        return path

    def fragment_lock(self, id: str) -> FragmentLock:
        """The lock of a fragment; executors hold it while they run the fragment."""
        return FragmentLock(self.fragment(id) / "lock", f"{self.app_id}/{id}")

    def channel(self, id: str) -> str:
        """The place of a channel."""
        return str(self.home / "channels" / id)

    def tables(self, id: str) -> Path:
        """Where the reader of a table keeps what it read."""
        return self.home / "tables" / id

    def store(self, id: str) -> str:
        """The place of the store at the end of a source."""
        return str(self.path / "stores" / id)

    def source(self, id: str) -> Path:
        """Where a source keeps what outlives the lives; not made."""
        return self.path / "sources" / id

    def dead_letters(self, id: str) -> str:
        """The place of a fragment's dead letters."""
        return str(self.path / "dead-letters" / id)

    def _prepared(self) -> dict[str, Any]:
        # Half a directory is no prepared one.
        return {} if (self.path / "clearing").exists() else read_notes(self._preparation)

    def _read(self) -> dict[str, Any]:
        self._require_trusted()
        return {} if self._is_forgotten else read_notes(self._notes)


def state_shape(plan: Plan) -> dict[str, Any]:
    """What of a plan Spark's checkpoints depend on: inputs and trunk of every fragment."""
    return {
        f.id: [*f.inputs, *(f"{p}: {plan.operators[p].kind} {plan.operators[p].text}" for p in f.trunk)]
        for f in plan.fragments
    }


def _told(shape: Mapping[str, Any]) -> str:
    return "; ".join(f"{k}: {', '.join(v)}" for k, v in shape.items())
