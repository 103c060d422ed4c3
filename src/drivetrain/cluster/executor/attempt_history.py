"""The former messages that an attempt reads for a change, while its fragment keeps running.

Problem: a change of an application in a cluster may need messages that this fragment processed long ago. They
are read here, beside the fragment's batches, because the new version is compiled here; the application master
decides whether the change continues, and may be replaced meanwhile.

Design: the file of `runtime.wanted_history` names the proposed version that waits. The executor that has
checked this version has a reader for the fragment, whose steps are taken in a thread of their own
(`spark.run.history_reader`). The attempt reports the progress. When all readers are near, the application
master pauses the fragments (`attempt_handover`); this one stands once its reader has read up to its last
batch, and has completed the channels.

What if we die here: an attempt that begins later has no reader, and reports that, so the application master
gives the change up; nothing has changed.

Invariants:

1. The channels are complete before the attempt reports that the fragment stands.
2. When the file no longer asks for the history, nothing is read any more.

Called by `attempt_versions`, in the attempt's thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from drivetrain.cluster.messages.changing import HistoryReading
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.runtime.error_views import error_view
from drivetrain.runtime.former_messages import FormerMessages
from drivetrain.spark.run.history_readers import failed_notices, failure_of

if TYPE_CHECKING:
    from drivetrain.cluster.executor.running_versions import RunningVersions
    from drivetrain.cluster.messages.following import ErrorView
    from drivetrain.runtime.handover_pause import HandoverPause
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.run.fragment_driver import FragmentDriver
    from drivetrain.spark.run.history_reader import HistoryReader
    from drivetrain.spark.run.recovery import SteppedWork

log = logging.getLogger(__name__)


class AttemptHistory:
    """Reads former messages with a reader of `shared`, beside the fragment that `driver` drives."""

    def __init__(self, shared: RunningVersions, driver: FragmentDriver) -> None:
        self._shared: Final = shared
        self._driver: Final = driver
        self._mark: int | None = None
        self._id: str | None = None  # the proposal whose history is wanted
        self._reader: HistoryReader | None = None
        self._stepping: SteppedWork | None = None
        self._failed: ErrorView | None = None
        self._is_complete = False

    @property
    def state(self) -> HistoryReading | None:
        """The progress, for the application master; None if nothing is wanted of this fragment."""
        reader = self._reader
        if self._id is None:
            return None
        if reader is None:
            return HistoryReading(self._id, failed=self._failed)
        until_ms = max(self._driver.query.clock.newest_ms.values(), default=None)
        known = self._shared.versions.in_force.record.processors
        lost = tuple(failed_notices(reader, known)) if self._is_complete else ()
        progress = (reader.rows, reader.newest_ms, until_ms)
        return HistoryReading(self._id, *progress, reader.is_near, self._failed, lost)

    def look(self, mark: int) -> None:
        """Begin or stop to read; the file is read when `mark` has changed."""
        if mark != self._mark:
            self._mark = mark
            try:
                self._read()
            except DrivetrainError as error:
                log.warning("which messages %s reads again is unknown: %s", self._driver.fragment, error)
        if self._stepping is not None and not self._stepping.is_alive():
            self._failed = error_view(failure_of(self._stepping))
            self._stepping = None

    def _read(self) -> None:
        shared, fragment = self._shared, self._driver.fragment
        wanted = shared.wanted_history.read()
        if wanted is None or fragment not in wanted.channels or wanted.is_over(shared.stored.in_force()):
            self.close()
        elif wanted.id != self._id:
            self.close()
            self._id, self._reader = wanted.id, shared.take_reader(wanted.id, fragment)
            if self._reader is None:
                self._failed = error_view(_not_here(fragment))
            else:
                self._stepping = shared.begin_reading(fragment, self._reader.steps())

    def has_read(self, pause: HandoverPause, query: FragmentQuery) -> bool:
        """Whether the channels are complete for a pause, in which the fragment's query is held.

        True for a pause for another reason.
        """
        if not pause.has_history or self._is_complete:
            return True
        reader = self._reader
        if reader is None or self._id != pause.id or self._stepping is None:
            return False
        reader.held_at = query.batch_id
        if reader.done_at != query.batch_id:
            return False
        reader.complete(query.clock_ms)
        self._is_complete = True
        return True

    def close(self) -> None:
        """Stop reading, and delete what has not been put in its place."""
        if self._stepping is not None:
            self._stepping.give_up()
        if self._id is not None:
            FormerMessages(self._shared.versions.rundir, self._id).delete(self._driver.fragment)
        self._id = self._reader = self._stepping = self._failed = None
        self._is_complete = False


def _not_here(fragment: str) -> UnavailableError:
    return UnavailableError(
        "the fragment has begun again, so its executor has not compiled the change",
        where=f"fragment {fragment}",
        remedy="nothing has changed; try again",
    )
