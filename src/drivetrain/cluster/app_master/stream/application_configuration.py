"""Changes configuration keys of an application while it runs in a cluster.

Problem: executors read the changed values from a file in the application's state directory, as an embedded
run does. An application master that was replaced, but was only frozen, must not write it.

Design: the file is written in a thread, while this application master is the one for which executors have
prepared the application. What if we die here: the file has the previous values, or the new ones; a client
without an answer asks again, and then gets the differences that remain.

Called by `stream_app_master`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from drivetrain.cluster.app_master.app_master_messages import RunAction
from drivetrain.cluster.app_master.stream.stored_versions import StoredVersions
from drivetrain.cluster.messages.changing import ChangeConfiguration, ConfigurationChanged
from drivetrain.runtime.error_views import error_view

if TYPE_CHECKING:
    from drivetrain.actor import ActorRef, Message
    from drivetrain.cluster.app_master.app_master import ApplicationMaster


class ApplicationConfiguration:
    """The part of an application master that answers `ChangeConfiguration`."""

    def __init__(self, owner: ApplicationMaster, stored: StoredVersions) -> None:
        self._owner: Final = owner
        self._stored: Final = stored

    def received(self, message: Message) -> bool:
        """Handle a request; False for any other message."""
        asker = self._owner.context.sender
        if not isinstance(message, ChangeConfiguration) or asker is None:
            return False
        self._owner.context.pipe_to_self(
            self._owner.context.blocking(functools.partial(self._stored.configure, message)),
            lambda answer: RunAction(functools.partial(self._answer, answer, asker)),
            lambda error: RunAction(functools.partial(self._owner.note, error_view(error))),
        )
        return True

    def _answer(self, answer: ConfigurationChanged, asker: ActorRef) -> None:
        for value in answer.changed:
            self._owner.setup.log(f"{value.name} is {value.after} from now on; it was {value.before}")
        asker.tell(answer, self._owner.context.me)
