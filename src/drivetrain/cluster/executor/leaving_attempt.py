"""The last steps of a fragment that leaves, in its attempt: drain or stop, then delete what it has.

Problem: as in an embedded run (`core.change.leaving`), a fragment's channels end, or are deleted, only after
its producers have stopped writing to them; and it may be deleted only by the holder of its lock, because an
earlier attempt may live on somewhere.

Design: the outcome in the state directory states whether and how a fragment leaves. The attempt waits for
`LeavePermitted`, by which the application master confirms that no producer writes to the fragment any more.
Then it ends the channels and drains; once it has finished, or at once if it is discarded, it stops, and
deletes everything.

What if we die here: the next attempt finds in the outcome how far this one was. Ends that are appended twice
count once; a deletion is done again.

Invariants:

1. Channels end, and are deleted, only after `LeavePermitted`.
2. Files are deleted only after the outcome allows it, and by the holder of the fragment's lock.

Called by `fragment_attempt`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.run.withdrawn_sinks import WithdrawnSinks

if TYPE_CHECKING:
    from drivetrain.cluster.executor.running_versions import RunningVersions
    from drivetrain.runtime.fragment_roles import Role
    from drivetrain.spark.run.fragment_driver import FragmentDriver


class LeavingAttempt:
    """An attempt of `fragment`, which leaves, or may leave, the application whose versions are `shared`."""

    def __init__(self, shared: RunningVersions, fragment: str) -> None:
        self._shared: Final = shared
        self._fragment: Final = fragment
        self._have_ended = False

    def has_drained(self, role: Role, driver: FragmentDriver) -> bool:
        """Whether the fragment has processed all that it has; takes the next step towards that.

        Only for a fragment that drains, and that no producer writes to any more.
        """
        if not self._have_ended:
            self._end_channels(role)
        if driver.is_finished or driver.is_recovering or not driver.query.trunk.sources:
            return driver.is_finished
        driver.drain()  # a source of its own ends with the running batch
        return not driver.is_draining

    def _end_channels(self, role: Role) -> None:
        rundir = self._shared.versions.rundir
        for channel, producer in role.record.channel_producers(self._fragment).items():
            ChannelStore(rundir.channel(channel), fragment=producer).append_clock(FINAL_CLOCK_MS)
        maybe_crash(CrashPoint.CHANNEL_ENDS)
        self._have_ended = True

    def delete(self, role: Role) -> None:
        """Delete the fragment, which no longer runs, and to which no producer writes."""
        stored, rundir, record = self._shared.stored, self._shared.versions.rundir, role.record
        stored.note_leaving(role.by, self._fragment, "is deleted")
        maybe_crash(CrashPoint.FRAGMENT_LEAVES)
        WithdrawnSinks(self._shared.versions, {}).remove_of(self._fragment)
        rundir.places.delete(self._fragment, record.channels(self._fragment), record.sources(self._fragment))
        stored.note_leaving(role.by, self._fragment, None)
