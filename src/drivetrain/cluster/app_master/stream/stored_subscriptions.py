"""What other applications ask of one that runs in a cluster, in files, as its application master sees them.

Design: `runtime.subscription_requests` has the files. What an application master writes there, it writes
while it is the newest one, as it does with versions (`stored_versions`).

Called by `application_subscriptions`, in threads. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain.core.change.subscription_request_queue import RequestsRead, WantedSubscription
from drivetrain.runtime.subscription_requests import SubscriptionRequests

if TYPE_CHECKING:
    from drivetrain.runtime.preparation import Preparer
    from drivetrain.runtime.run_directory import RunDirectory


class StoredSubscriptions:
    """The requests in `rundir`, which notes this application master as `me`."""

    def __init__(self, rundir: RunDirectory, me: Preparer) -> None:
        self._rundir: Final = rundir
        self._me: Final = me
        self._requests: Final = SubscriptionRequests(rundir.path, rundir.writers)

    def look(self) -> RequestsRead:
        """The requests, and the subscriptions in force; raises InputError when a version is damaged."""
        wanted = self._requests.all()
        in_force = self._rundir.versions.in_force() if wanted else None
        known = () if in_force is None else in_force.subscriptions
        return RequestsRead(wanted, known, self._requests.refused() if wanted else frozenset())

    def refuse(self, wanted: WantedSubscription, why: Exception) -> None:
        """Tell a reader why its request was refused; raises UnavailableError when that is not this
        application master's to do, and what writing raises."""
        with self._rundir.preparation.while_prepared_by(self._me):
            self._requests.refuse(wanted, why)

    def forget(self, wanted: WantedSubscription) -> None:
        """A subscription has ended that was to end; raises as `refuse`."""
        with self._rundir.preparation.while_prepared_by(self._me):
            self._requests.forget(wanted)
