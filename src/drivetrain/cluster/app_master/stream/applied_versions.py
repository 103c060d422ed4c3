"""What the files of an application's versions show, as it is applied to the running application.

Problem: which fragments run, which of them leave, and which two versions hand over is decided by files, which
this process, executors and an earlier application master write at any time.

Design: after each step of a change the files are read as a whole, in a thread, and applied: attempts that
have not seen the newest version are asked to look, fragments start and leave, a handover begins or ends.

Invariants:

1. What was read before the last step of a change is not applied.

Called by `application_changes`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from drivetrain.cluster.app_master.blocking_work import in_thread
from drivetrain.cluster.app_master.stream.application_handover import ApplicationHandover
from drivetrain.cluster.app_master.stream.attempt_reports import AttemptReports
from drivetrain.cluster.app_master.stream.leaving_fragments import LeavingFragments
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.runtime.error_views import error_view

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.cluster.app_master.stream.running_job import RunningJob
    from drivetrain.cluster.app_master.stream.stored_versions import StoredVersions, VersionsState
    from drivetrain.core.change.handover import Handover


class AppliedVersions:
    """The versions that `stored` reads, applied to the job `running` of `owner`.

    `handed_over` is called at the end of a handover, and `settled` when a fragment has left.
    """

    def __init__(
        self,
        owner: ApplicationMaster,
        running: RunningJob,
        stored: StoredVersions,
        handed_over: Callable[[Handover], None],
        settled: Callable[[], None],
    ) -> None:
        self._owner: Final = owner
        self._stored: Final = stored
        self._settled: Final = settled
        self.reports: Final = AttemptReports(owner, running)
        self.leaving: Final = LeavingFragments(running, self.reports, owner.setup.epoch)
        self.handover: Final = ApplicationHandover(running.job, handed_over)
        self._is_reading = False

    def apply(self, state_read: VersionsState) -> None:
        """Have attempts read the files, and adapt the job to them."""
        reports = self.reports
        reports.number, reports.newest = state_read.state.version, state_read.newest
        reports.is_trial = state_read.change is not None
        self.handover.apply(state_read)
        for fragment in self.leaving.apply(state_read):
            self._owner.note(ErrorView("notice", f"fragment {fragment} has left the application"))

    def look(self, is_between_steps: Callable[[], bool]) -> None:
        """Ask attempts that have not seen the newest version to look; notice those that have left."""
        self.reports.poll()
        self.leaving.look()
        if self.leaving.is_behind and not self._is_reading:
            self._is_reading = True

            def look_again(state_read: VersionsState) -> None:
                self._is_reading = False
                if state_read.newest == self.reports.newest and is_between_steps():
                    self._look_again(state_read)

            in_thread(self._owner, self._stored.read_state, look_again, self._not_read)

    def _look_again(self, state_read: VersionsState) -> None:
        """An attempt of a fragment that leaves has ended: it has left, or needs another one."""
        self.apply(state_read)
        self.leaving.run_again()
        self._settled()

    def _not_read(self, error: Exception) -> None:
        self._is_reading = False
        self._owner.note(error_view(error))
