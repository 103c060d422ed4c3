"""The figures of applications over time, in a file of SQLite.

Problem: an application master keeps a quarter of an hour, in memory. A question about last night needs more.
The figures that answer it must survive the console, must not grow without bound, and must never keep the
console from starting.

Design: a row for each moment of each application: those that the application master recorded (`STEP_MS`
apart) for `FINE_MS`, and one merged row (`core.job.history.merged`) for each `COARSE_STEP_MS` for
`COARSE_MS`. The file has at most `MOST_BYTES`; when it is full, the oldest rows of all applications are
deleted. What if we die here: a write is one transaction in SQLite's write-ahead log, so a file has all of it
or nothing. A file that SQLite cannot read is renamed, with a warning, and a new one begun. When the disk is
full, there is one warning, and the existing rows can still be read.

Invariants:

1. Of an application there is at most one row for each step and time; recording a moment again changes
   nothing.
2. Reading holds one group of moments that are merged, and the result, which has at most `points` moments.

Called by `console.past.recorder`, in one thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.job.history import MOST_FIGURES, STEP_MS, Moment, merged
from drivetrain.errors import OutputError
from drivetrain.private_files import make_private_directory, private

FINE_MS: Final = 26 * 3_600_000
COARSE_MS: Final = 30 * 24 * 3_600_000
COARSE_STEP_MS: Final = 300_000
MOST_BYTES: Final = 1 << 30
MOST_READ: Final = 200_000
"""So many figures of fragments are read for one answer; for more, coarse rows take the place of fine ones."""
_PAGE_BYTES: Final = 4096
_BUSY_S: Final = 5.0
_MOST_AHEAD_MS: Final = 3_600_000
"""A moment of a clock that is further ahead would hide those of the right time."""
_VERSION: Final = 1
_LARGEST_ROW_BYTES: Final = 16 * 2**20

log = logging.getLogger("drivetrain.console")


class HistoryFile:
    """The figures in the file at `path`, which is created if it does not exist.

    Raises OutputError when no file can be made.
    """

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._path: Final = path
        self._most_bytes: Final = most_bytes
        self._is_full = False
        try:
            make_private_directory(path.parent, "the directory of the console")
            try:
                self._db = self._opened()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._put_aside(error)
                self._db = self._opened()
        except (sqlite3.Error, OSError) as error:
            raise OutputError(
                "the history of figures cannot be kept",
                where=str(path),
                got=str(error),
                remedy="make console.directory writable, or free some space; the console runs without it",
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def newest_ms(self, app_id: str) -> int | None:
        """The time of the newest moment of an application; None without one."""
        return self._newest(app_id)

    def note(self, app_id: str, moments: Sequence[Moment], now_ms: int) -> None:
        """Keep the moments that are not kept yet; deletes what is too old at `now_ms`.

        A damaged file is replaced, and a full disk or file is a warning.
        """
        with self._surviving():
            for _ in range(3):
                try:
                    self._note(app_id, moments, now_ms)
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                        raise
                    if not self._make_room():
                        break
                else:
                    self._is_full = False
                    return
            if not self._is_full:
                self._is_full = True
                log.warning("figures are not kept any more: the disk of %s is full; make room", self._path)

    def between(self, app_id: str, since_ms: int, until_ms: int, points: int) -> list[Moment]:
        """The moments of an application in [since_ms, until_ms], oldest first, at most `points`.

        Where there are more, neighbours are merged. A damaged file is replaced, and has none.
        """
        found: list[Moment] = []
        with self._surviving():
            found = self._between(app_id, since_ms, until_ms, points)
        return found  # noqa: RET504 - a damaged file ends the block without a result

    # ---- inside

    def _opened(self) -> sqlite3.Connection:
        os.close(private(str(self._path), os.O_RDWR | os.O_CREAT))
        db = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA max_page_count = {self._most_bytes // _PAGE_BYTES}")
            _require_sound(db)
            db.execute(
                "CREATE TABLE IF NOT EXISTS moment (app_id TEXT NOT NULL, step_ms INTEGER NOT NULL, "
                "at_ms INTEGER NOT NULL, fragments INTEGER NOT NULL, data BLOB NOT NULL, "
                "PRIMARY KEY (app_id, step_ms, at_ms)) WITHOUT ROWID"
            )
            db.execute("CREATE INDEX IF NOT EXISTS by_time ON moment (at_ms)")
            db.execute(f"PRAGMA user_version = {_VERSION}")
        except BaseException:
            db.close()
            raise
        return db

    def _put_aside(self, error: sqlite3.Error) -> None:
        aside = self._path.with_name(f"{self._path.name}.damaged")
        for end in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self._path}{end}", f"{aside}{end}")
        log.warning(
            "the history of figures cannot be read (%s); it is kept as %s, and a new one begins", error, aside
        )

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        """Replace a file that turns out to be damaged; other errors of SQLite are warnings."""
        try:
            yield
        except sqlite3.Error as error:
            if not _is_damage(error):
                log.warning("the history of figures cannot be used right now: %s", error)
                return
            self._db.close()
            try:
                self._put_aside(error)
                self._db = self._opened()
            except (sqlite3.Error, OSError) as again:
                log.warning("no new file for the history of figures can be made: %s", again)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.OperationalError):  # SQLite has rolled it back on a full disk
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _newest(self, app_id: str) -> int | None:
        row = self._db.execute(
            "SELECT max(at_ms) FROM moment WHERE app_id = ? AND step_ms = ?", (app_id, STEP_MS)
        ).fetchone()
        return None if row is None else row[0]

    def _note(self, app_id: str, moments: Sequence[Moment], now_ms: int) -> None:
        newest = self._newest(app_id)
        latest = now_ms + _MOST_AHEAD_MS
        new = [m for m in moments if (newest is None or m.at_ms > newest) and m.at_ms <= latest]
        with self._transaction():
            for moment in new:
                self._put(app_id, STEP_MS, moment.at_ms, moment)
            for start in dict.fromkeys(m.at_ms - m.at_ms % COARSE_STEP_MS for m in new):
                rows = self._rows(app_id, STEP_MS, start, start + COARSE_STEP_MS - 1)
                self._put(app_id, COARSE_STEP_MS, start, merged(list(rows)))
            for step_ms, age_ms in ((STEP_MS, FINE_MS), (COARSE_STEP_MS, COARSE_MS)):
                self._db.execute(
                    "DELETE FROM moment WHERE step_ms = ? AND at_ms < ?", (step_ms, now_ms - age_ms)
                )

    def _put(self, app_id: str, step_ms: int, at_ms: int, moment: Moment) -> None:
        content = msgspec.msgpack.encode(moment)
        if len(content) > _LARGEST_ROW_BYTES:
            log.warning("a moment of %s is not kept: it has %d bytes", app_id, len(content))
            return
        data = zlib.compress(content, 1)
        self._db.execute(
            "INSERT OR REPLACE INTO moment VALUES (?, ?, ?, ?, ?)",
            (app_id, step_ms, at_ms, len(moment.fragments), data),
        )

    def _make_room(self) -> bool:
        """Delete the oldest tenth of all rows; False when there is none, or not even space for that."""
        try:
            with self._transaction():
                (count,) = self._db.execute("SELECT count(*) FROM moment").fetchone()
                self._db.execute(
                    "DELETE FROM moment WHERE (app_id, step_ms, at_ms) IN "
                    "(SELECT app_id, step_ms, at_ms FROM moment ORDER BY at_ms LIMIT ?)",
                    (count // 10 + 1,),
                )
        except sqlite3.OperationalError:
            return False
        return bool(count)

    def _between(self, app_id: str, since_ms: int, until_ms: int, points: int) -> list[Moment]:
        span = (app_id, STEP_MS, since_ms, until_ms)
        of_span = "FROM moment WHERE app_id = ? AND step_ms = ? AND at_ms BETWEEN ? AND ?"
        figures, largest, first = self._db.execute(
            f"SELECT total(max(fragments, 1)), max(fragments), min(at_ms) {of_span}", span
        ).fetchone()
        is_whole = first is not None and (
            first <= since_ms + COARSE_STEP_MS or until_ms - since_ms <= FINE_MS
        )
        step_ms = STEP_MS if is_whole and figures <= MOST_READ else COARSE_STEP_MS
        begin = since_ms if step_ms == STEP_MS else since_ms - since_ms % COARSE_STEP_MS
        (count,) = self._db.execute(
            f"SELECT count(*) {of_span}", (app_id, step_ms, begin, until_ms)
        ).fetchone()
        most = max(1, min(points, MOST_FIGURES // max(1, largest or 1)))
        each = -(-count // most) or 1
        rows = enumerate(self._rows(app_id, step_ms, begin, until_ms))
        return [merged([m for _, m in of]) for _, of in groupby(rows, lambda numbered: numbered[0] // each)]

    def _rows(self, app_id: str, step_ms: int, since_ms: int, until_ms: int) -> Iterator[Moment]:
        found = self._db.execute(
            "SELECT data FROM moment WHERE app_id = ? AND step_ms = ? AND at_ms BETWEEN ? AND ? "
            "ORDER BY at_ms",
            (app_id, step_ms, since_ms, until_ms),
        )
        for (data,) in found:
            try:
                inflated = zlib.decompressobj().decompress(data, _LARGEST_ROW_BYTES)
                yield msgspec.msgpack.decode(inflated, type=Moment)
            except (zlib.error, msgspec.MsgspecError, TypeError) as error:
                raise _DamagedError(f"a row cannot be read: {error}") from error


def _require_sound(db: sqlite3.Connection) -> None:
    """Raise _DamagedError unless the file is whole, and new or of this version."""
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise _DamagedError(found)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version not in (0, _VERSION):
        raise _DamagedError(f"a format of another version, {version}")


class _DamagedError(sqlite3.DatabaseError):
    """SQLite can read the file, but it is not what we wrote."""


def _is_damage(error: sqlite3.Error) -> bool:
    damaged = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, _DamagedError) or (code is not None and code & 0xFF in damaged)
