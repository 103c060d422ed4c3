"""The actor that receives an application master's status, and watches the application master.

Why an actor: only an actor has a reference to which another process can send messages, and only an actor can
watch. It passes everything on; `attachment` makes the decisions.

Called by `client.Client.follow`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from drivetrain.actor import Actor, ActorRef, Message, Terminated
from drivetrain.cluster.client.attachment import AppMasterLost, Event, StatusReceived
from drivetrain.cluster.messages.following import Follow, Status, Unfollow


class StartFollowing(Message, frozen=True, tag="dt.local.client-follow-this"):
    """From the client: follow this application master, and no other."""

    app_master: ActorRef


class Follower(Actor):
    """Calls `seen` with each status of an application master, and when it is lost."""

    def __init__(self, seen: Callable[[Event], None]) -> None:
        self._seen: Final = seen
        self._followed: ActorRef | None = None

    def receive(self, message: Message) -> None:
        """Pass a message on to `seen`."""
        match message:
            case StartFollowing(app_master):
                if app_master != self._followed:
                    self._let_go()
                self._followed = app_master
                self.context.watch(app_master)
                app_master.tell(Follow(self.context.me), self.context.me)
            case Status(status):
                self._seen(StatusReceived(status))
            case Terminated(actor):
                self._seen(AppMasterLost(actor))
            case _:
                self.context.unhandled(message)

    def post_stop(self) -> None:
        """Unfollow the application master."""
        self._let_go()

    def _let_go(self) -> None:
        followed, self._followed = self._followed, None
        if followed is not None:
            self.context.unwatch(followed)
            followed.tell(Unfollow(self.context.me), self.context.me)
