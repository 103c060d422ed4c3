"""The part of one attempt in a change for which fragments pause, as one that takes effect at an event time.

Problem: such a change may be recorded only while the fragments that it changes stand between two batches. At
an event time each of them then runs both versions, until its own clock is at that time. Attempts, executors
and the application master may die between any two steps.

Design: a file pauses the fragments (`runtime.handover_pause`). An attempt that reads it holds its query, and
reports that it stands once all batches that have begun are committed. It reads the file again until the
pause is over, and then first takes up the version in force. How long its fragment runs both versions depends
on its own batches alone, so the attempt steps `core.change.handover` for its fragment, and the application
master does so for all of them.

| the attempt | during a pause |
|---|---|
| ran before it | runs again what a crash interrupted, and stands |
| started during it | holds its query, and never stands: the application master ends the pause |
| stood, and its query is followed by another one | the next one is held, too |

Invariants:

1. While its fragment is paused, and once it stands, an attempt begins no batch.
2. A query is released only after the attempt has taken up the version in force, as read after the pause.

Called by `attempt_versions`, for the attempt's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain.core.change.difference import touched
from drivetrain.core.change.handover import (
    ConfirmFragment,
    FragmentCommitted,
    FragmentInputEnded,
    Handover,
    HandoverBegun,
    HandoverStages,
    RunNewVersion,
)
from drivetrain.core.change.handover import Event as HandoverEvent
from drivetrain.core.job.run_progress import FragmentState
from drivetrain.errors import InputError
from drivetrain.runtime.handover_pause import HandoverPause, HandoverPauseFile
from drivetrain.spark.run.fragment_versions import has_new_messages, note_alone
from drivetrain.spark.run.handover_times import newest_ms

if TYPE_CHECKING:
    from drivetrain.cluster.executor.attempt_history import AttemptHistory
    from drivetrain.core.change.graph_version import GraphVersion
    from drivetrain.spark.run.application_versions import ApplicationVersions
    from drivetrain.spark.run.fragment_driver import FragmentDriver


class AttemptHandover:
    """The pauses and the handover of the fragment of `driver`, in an executor that has loaded `versions`.

    `history` reads former messages for a change.
    """

    def __init__(
        self, versions: ApplicationVersions, driver: FragmentDriver, history: AttemptHistory
    ) -> None:
        self._versions: Final = versions
        self._driver: Final = driver
        self._history: Final = history
        self._file: Final = HandoverPauseFile(versions.rundir.path)
        self._stages: Final = HandoverStages()
        self._entered: Handover | None = None  # the handover of the version that was read
        self._has_proven = self._is_unsettled = False
        self._pause: HandoverPause | None = None
        self._is_over = True  # according to the file that was read
        self._may_stand = False  # in the pause that was read
        self.stands: str | None = None
        """The proposal for which the fragment stands between two batches."""
        self.newest_ms: int | None = None
        """The latest time that a message may have had that it processed until then."""
        self._is_unreadable = False
        versions.held.discard(driver.fragment)  # that was for an earlier attempt, which has ended
        driver.query.is_held = False

    # -- the pause -------------------------------------------------------------------------------------

    def find_pause(self) -> None:
        """Read whether the fragment must pause; called before the version in force is read. Raises
        InputError, and the fragment then pauses until the file can be read."""
        driver = self._driver
        try:
            pause = self._file.read()
            if pause is not None and driver.fragment not in pause.touched:
                pause = None
            if pause is not None and pause.is_over(self._versions.rundir.versions.in_force()):
                pause = None
        except InputError:
            self._is_unreadable = driver.query.is_held = True
            self._versions.held.add(driver.fragment)
            raise
        if pause is not None and (self._pause is None or self._pause.id != pause.id):
            self._may_stand = driver.query.state is not FragmentState.STARTING
            self.stands = self.newest_ms = None
        if pause is not None:
            self._pause = pause
            self._stand()
        self._is_over = pause is None

    def release(self) -> None:
        """The attempt has taken up the version in force: batches may begin, unless there is a pause."""
        if self._is_over and self.is_pausing:
            self._pause = self.stands = self.newest_ms = None
            self._is_unreadable = False
            self._versions.held.discard(self._driver.fragment)
            self._driver.query.is_held = False

    @property
    def is_pausing(self) -> bool:
        """Whether the files must be read again and again."""
        return self._pause is not None or self._is_unreadable

    def _stand(self) -> None:
        """Hold the query, and note whether all its batches are committed."""
        driver, query, pause = self._driver, self._driver.query, self._pause
        assert pause is not None
        if driver.is_recovering or driver.is_finished:
            return
        if self._may_stand and self.stands is None and query.batch_id < query.replay_until:
            self._versions.held.discard(driver.fragment)  # a batch that was interrupted runs again first
            query.is_held = False
            return
        self._versions.held.add(driver.fragment)
        query.is_held = True
        if not self._may_stand or self.stands is not None or not query.turn.acquire(blocking=False):
            return
        try:
            if query.is_committed() and self._history.has_read(pause, query):
                self.newest_ms = newest_ms(
                    self._versions.rundir,
                    {driver.fragment: driver},
                    self._versions.in_force,
                    driver.fragment,
                )
                self.stands = pause.id
        finally:
            query.turn.release()

    # -- the handover ----------------------------------------------------------------------------------

    @property
    def before(self) -> int:
        """The version that the fragment runs together with the one in force; 0: none."""
        handover = self._stages.handover
        return 0 if handover is None else handover.before

    @property
    def has_proven(self) -> bool | None:
        """Whether the fragment has shown that the version in force works, or cannot show it; None if there
        is no handover here."""
        return self._has_proven if self._entered is not None else None

    def enter(self, record: GraphVersion) -> None:
        """The version in force is `record`: begin its handover, unless that has begun; raises InputError."""
        if self._entered is not None and self._entered.number == record.number:
            return
        self._stages.withdraw()
        self._entered, self._has_proven, self._is_unsettled = None, False, False
        fragment, noted = self._driver.fragment, self._driver.query.versions
        if record.at_ms is None or noted is None:
            return
        if fragment not in touched(self._versions.handing_over(record), record):
            return
        of = frozenset({fragment})
        self._entered = Handover(record.number, record.follows, record.at_ms, of)
        is_alone = noted.has_run_alone(record.number)
        self._take(HandoverBegun(self._entered, of if is_alone else frozenset()))

    def look(self) -> bool:
        """Look at the fragment's progress; returns whether it must run the new version alone from now on."""
        handover, driver, query = self._stages.handover, self._driver, self._driver.query
        if handover is None:
            if self._is_unsettled and note_alone(driver):
                self._is_unsettled = False
            return False
        if driver.is_finished:
            self._take(FragmentInputEnded(driver.fragment))
        elif query.versions is not None and not driver.is_recovering:
            has_new = has_new_messages(query, handover)
            self._take(FragmentCommitted(driver.fragment, query.settled_clock_ms, has_new))
        return self._stages.handover is None

    def _take(self, event: HandoverEvent) -> None:
        for effect in self._stages.step(event):
            match effect:
                case ConfirmFragment():
                    self._has_proven = True
                case RunNewVersion():
                    self._is_unsettled = True
