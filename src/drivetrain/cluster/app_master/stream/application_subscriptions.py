"""Subscriptions of other applications to one that runs in a cluster, as its application master sees them.

Problem: readers ask by files, and may be away when they are answered; a change may be refused because another
one is under way; and this process may die at any moment.

Design: with each beat the requests are read, and `core.change.subscription_request_queue` decides. A
subscription is a change of the graph like any other: one executor makes the version, and all that run its
fragment compile it. This process asks for that as a client does, and gets the answer of one. The reader needs
no answer: it finds its subscription in the version in force.

What if we die here: the next application master reads the same requests, and finds what is fulfilled.

Invariants:

1. One request at a time is answered.

Called by `stream_app_master`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from drivetrain.cluster.app_master.blocking_work import in_thread
from drivetrain.cluster.messages.changing import ChangeGraph, ChangeStatus, GraphEdit
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.core.change import subscription_request_queue as desk
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.change_state import ChangeUnderwayError
from drivetrain.errors import DiskFullError, UnavailableError, UserError
from drivetrain.runtime.error_views import error_view

if TYPE_CHECKING:
    from drivetrain.actor import Message
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.cluster.app_master.stream.change_answers import ChangeRequester
    from drivetrain.cluster.app_master.stream.stored_subscriptions import StoredSubscriptions

_PASSING: Final = (UnavailableError.code, ChangeUnderwayError.code, DiskFullError.code)
"""The errors of changes that may be made later."""


class ApplicationSubscriptions:
    """The subscriptions to the application of `owner`, whose files `stored` has.

    `change` asks for a change, as a client; `may_change` returns whether one may begin now.
    """

    def __init__(
        self,
        owner: ApplicationMaster,
        stored: StoredSubscriptions,
        change: Callable[[ChangeGraph, ChangeRequester], None],
        may_change: Callable[[], bool],
    ) -> None:
        self._owner: Final = owner
        self._stored: Final = stored
        self._change: Final = change
        self._may_change: Final = may_change
        self._desk: Final = desk.SubscriptionRequestQueue()
        self._is_looking = False

    def beat(self) -> None:
        """Read the requests, if they can be fulfilled now."""
        if self._is_looking or self._desk.under_way is not None or not self._may_change():
            return
        self._is_looking = True
        in_thread(self._owner, self._stored.look, self._looked, self._not_looked)

    def _looked(self, seen: desk.RequestsRead) -> None:
        self._is_looking = False
        for effect in self._desk.step(seen):
            self._perform(effect)
        self._desk.check(seen.wanted)

    def _not_looked(self, error: Exception) -> None:
        self._is_looking = False
        self._owner.note(error_view(error))

    def tell(self, message: Message) -> None:
        """The answer to the change that was asked for."""
        if not isinstance(message, ChangeStatus) or (wanted := self._desk.under_way) is None:
            return
        error = message.error
        self._notice(wanted, error)
        answer = (
            desk.ChangeApplied() if error is None else desk.ChangeRefused(for_good=error.code not in _PASSING)
        )
        for effect in self._desk.step(answer):
            self._perform(effect, error)

    def _perform(self, effect: desk.Effect, error: ErrorView | None = None) -> None:
        match effect:
            case desk.RequestChange(wanted):
                self._change(_request(wanted), self)
            case desk.ReportRefusal(wanted) if error is not None:
                why = UserError(error.what, where=error.where, got=error.got, remedy=error.remedy)
                self._write(partial(self._stored.refuse, wanted, why))
            case desk.DropRequest(wanted):
                self._write(partial(self._stored.forget, wanted))

    def _write(self, write: Callable[[], None]) -> None:
        in_thread(self._owner, write, lambda _: None, lambda error: self._owner.note(error_view(error)))

    def _notice(self, wanted: desk.WantedSubscription, error: ErrorView | None) -> None:
        reader = f"{wanted.of.reader}/{wanted.of.source}"
        if error is None:
            how = "reads no more from" if wanted.ends else "reads"
            self._owner.note(ErrorView("notice", f"{reader} {how} {wanted.of.stream}"))
        elif error.code not in _PASSING:
            self._owner.note(ErrorView("notice", f"{reader} cannot read {wanted.of.stream}: {error.what}"))


def _request(wanted: desk.WantedSubscription) -> ChangeGraph:
    of = wanted.of
    edit = GraphEdit("subscribe", of.stream, of)
    if wanted.ends:
        edit = GraphEdit("unsubscribe", f"{of.reader}/{of.source}")
    return ChangeGraph(0, options=ChangeOptions(even_if_read=True), edit=edit)
