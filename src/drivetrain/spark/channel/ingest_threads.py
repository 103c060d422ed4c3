"""The threads in which a source that cannot replay is pulled and stored.

Problem: a source may block at any time, and what it has delivered must be stored meanwhile.

Design: one thread pulls rows from the feed while there is room, the other takes the steps of `ingest`. An
error in either is kept until the engine calls `raise_error`.

Invariants:

1. The pulling thread holds the rows of one entry at most.
2. After `stop` no step runs.
3. Rows are acknowledged to the feed after the step that has stored them.

Called by `stored_sources`.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from drivetrain.errors import InputError, UnavailableError
from drivetrain.spark.channel.ingest import Ingest
from drivetrain.spark.connector.feed import Feed

_LOOK_S: Final = 0.02


class IngestThreads:
    """Pulls the rows of `feed` and stores them, from `start` until they end or `stop` is called."""

    def __init__(self, ingest: Ingest, feed: Feed) -> None:
        self._ingest: Final = ingest
        self._feed: Final = feed
        self._news: Final = threading.Event()
        self._room: Final = threading.Event()
        self._is_stopping: Final = threading.Event()
        self._error: BaseException | None = None
        self._pulling: Final = threading.Thread(target=self._pull, name="drivetrain-ingest-pull", daemon=True)
        self._storing: Final = threading.Thread(
            target=self._store, name="drivetrain-ingest-write", daemon=True
        )

    def start(self) -> None:
        """Continue after what is stored; returns at once."""
        if self._ingest.resume():
            self._pulling.start()
            self._storing.start()

    @property
    def stored(self) -> int:
        """How many rows the channel has received, over all runs."""
        return self._ingest.stored

    @property
    def finished(self) -> bool:
        """Whether the feed has ended and its final clock is stored."""
        return self._ingest.is_finished

    def raise_error(self) -> None:
        """Raise the error of a thread, if there is one; the engine calls it between batches."""
        if self._error is not None:
            raise self._error

    def wait_finished(self, timeout_s: float) -> bool:
        """Wait for the final clock; False if it is not stored within the timeout. Raises a thread's error."""
        deadline_s = time.monotonic() + timeout_s
        while not self.finished and time.monotonic() < deadline_s:
            self.raise_error()
            time.sleep(_LOOK_S)
        return self.finished

    def stop(self, timeout_s: float = 10.0) -> None:
        """Store the pulled rows, and end both threads. A feed that blocks for good is abandoned.

        Raises UnavailableError if the rows cannot be stored within the timeout.
        """
        self._is_stopping.set()
        self._feed.close()
        if not self._feed.ends_on_close:
            self._ingest.leave()
        self._ingest.stop()
        self._news.set()
        if self._storing.ident is None:
            return
        self._storing.join(timeout_s)
        self._pulling.join(min(timeout_s, 1.0))
        if self._storing.is_alive():
            raise UnavailableError(
                f"rows were still being stored after {timeout_s} s",
                where=self._ingest.store.uri,
                remedy="check the file system of the channel; the next run continues with what is stored",
            )

    def _pull(self) -> None:
        try:
            for row in self._feed.open(self._ingest.stored):
                self._ingest.take(row)
                while self._ingest.is_full and not self._is_stopping.is_set():
                    self._room.clear()
                    self._news.set()
                    self._room.wait(_LOOK_S)
                if self._is_stopping.is_set() and not self._feed.ends_on_close:
                    break
            else:
                if not self._is_stopping.is_set():
                    self._ingest.end()
        except BaseException as error:  # noqa: BLE001 - a step raises it after the rows before it
            if not self._is_stopping.is_set():
                self._ingest.fail(self._reported(error))
        finally:
            self._ingest.leave()
            self._news.set()

    def _store(self) -> None:
        try:
            while (wait_s := self._ingest.step(time.monotonic())) is not None:
                self._feed.acknowledge(self._ingest.stored)
                self._room.set()
                self._news.wait(wait_s)
                self._news.clear()
        except BaseException as error:  # noqa: BLE001 - kept for the engine
            self._error = self._reported(error)
            self._is_stopping.set()
            self._feed.close()
        finally:
            self._release()

    def _release(self) -> None:
        try:
            self._feed.acknowledge(self._ingest.stored)
        except Exception as error:  # noqa: BLE001 - kept for the engine; the first one is the cause
            self._error = self._error or error
        finally:
            self._feed.release()

    def _reported(self, error: BaseException) -> Exception:
        """An error of a feed as the engine raises it: the user's `sys.exit()` ends the run, not a thread."""
        if isinstance(error, Exception):
            return error
        ended = InputError(
            "a source ended its thread",
            where=self._ingest.store.uri,
            expected="an exception, or the end of its rows",
            got=repr(error),
            remedy="raise an error in open_feed's feed, not SystemExit; the next run continues",
        )
        ended.__cause__ = error
        return ended
