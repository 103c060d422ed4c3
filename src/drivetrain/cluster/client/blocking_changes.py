"""The part of the client without an event loop that changes applications while they run.

Called by the commands and by programs, through `blocking_client`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from drivetrain.api.durations import DEFAULT_TIMEOUT
from drivetrain.cluster.client.graph_edit_requests import (
    GraphEditRequest,
    attach_edit,
    remove_edit,
    replace_edit,
    unsubscribe_edit,
)
from drivetrain.cluster.client.submission import Submission, prepare_submission
from drivetrain.cluster.client.version_requests import GraphHistory
from drivetrain.core.change.change_options import NO_OPTIONS, ChangeOptions
from drivetrain.core.change.change_state import ChangeState, require_done
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.handover import time_given
from drivetrain.core.change.message_history import history_given
from drivetrain.core.change.scaling_state import PlannedScaling, ScalingState, require_scaled
from drivetrain.runtime.running_config import ChangedValue

if TYPE_CHECKING:
    from drivetrain.cluster.client.open_client import AnyClient
    from drivetrain.cluster.messages.applications import ApplicationView
    from drivetrain.config import Config

T = TypeVar("T")


class BlockingVersionsClient(ABC):
    """The methods of `version_requests.VersionsClient`, each waiting for its result."""

    _client: AnyClient
    _config: Config

    @abstractmethod
    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine of the client."""

    @abstractmethod
    def application(self, app: str) -> ApplicationView:
        """The application of this id or name."""

    def update(
        self,
        app: str,
        file: str,
        *,
        sets: Mapping[str, str] | None = None,
        directory: Path | None = None,
        archives: Sequence[Path] = (),
        discard: bool = False,
        even_if_read: bool = False,
        drop_state: Iterable[str] = (),
        at: str | int | datetime = "now",
        history: str | int | datetime | None = None,
        timeout: str = DEFAULT_TIMEOUT,
    ) -> int:
        """Change an application to the graph in `file` while it runs; returns the version once its trial is
        over.

        `sets` are added to the settings of the application. With `discard`, removed fragments do not process
        the rest of their input; with `even_if_read`, it may change what other applications read. The
        processors in `drop_state` may begin with an empty state, if theirs does not fit. With `at`, an event
        time or "next-window", the new version gets the messages from then on. With `history`, a moment, new
        fragments also get the messages from then on that were before the change. Raises the refusal,
        ChangeUnderwayError, RolledBackError when the new version has failed, and UnavailableError when its
        trial has not ended `timeout` after it came into force; the trial then continues.
        """
        spec = self.application(app).spec
        known = {**spec.config, **spec.settings, **(sets or {})}
        submission = prepare_submission(file, known, self._config, directory=directory, archives=archives)
        drops = tuple(drop_state)
        options = ChangeOptions(discard, even_if_read, drops, time_given(at), history_given(history))
        return self._ended(app, self.begin_update(app, submission, 0, options), timeout)

    def roll_back(
        self,
        app: str,
        number: int | None = None,
        timeout: str = DEFAULT_TIMEOUT,
        *,
        discard: bool = False,
        even_if_read: bool = False,
        drop_state: Iterable[str] = (),
    ) -> int:
        """Change an application back to a version (None: the one before); returns and raises as `update`."""
        wanted = self.versions(app).record.follows if number is None else number
        options = ChangeOptions(discards=discard, even_if_read=even_if_read, drops=tuple(drop_state))
        return self._ended(app, self.begin_rollback(app, wanted, 0, options), timeout)

    def attach(
        self,
        app: str,
        file: str,
        *,
        to: str,
        directory: Path | None = None,
        at: str | int | datetime = "now",
        history: str | int | datetime | None = None,
        timeout: str = DEFAULT_TIMEOUT,
    ) -> int:
        """Add what the function `attach` in `file` makes after processor `to`; returns and raises as
        `update`."""
        edit = attach_edit(file, to, directory=directory)
        options = ChangeOptions(at=time_given(at), history_ms=history_given(history))
        return self._ended(app, self.begin_edit(app, edit, 0, options), timeout)

    def replace(
        self,
        app: str,
        processor: str,
        file: str,
        *,
        directory: Path | None = None,
        discard: bool = False,
        even_if_read: bool = False,
        drop_state: Iterable[str] = (),
        at: str | int | datetime = "now",
        timeout: str = DEFAULT_TIMEOUT,
    ) -> int:
        """Put what the function `replace` in `file` returns in place of a processor, as `update`."""
        edit, drops = replace_edit(file, processor, directory=directory), tuple(drop_state)
        options = ChangeOptions(discards=discard, even_if_read=even_if_read, drops=drops, at=time_given(at))
        return self._ended(app, self.begin_edit(app, edit, 0, options), timeout)

    def remove(
        self,
        app: str,
        processor: str,
        *,
        discard: bool = False,
        even_if_read: bool = False,
        at: str | int | datetime = "now",
        timeout: str = DEFAULT_TIMEOUT,
    ) -> int:
        """Remove a processor, and everything that reads from it, as `update`."""
        options = ChangeOptions(discards=discard, even_if_read=even_if_read, at=time_given(at))
        return self._ended(app, self.begin_edit(app, remove_edit(processor), 0, options), timeout)

    def unsubscribe(self, app: str, reader: str) -> int:
        """End the subscriptions of `reader`, an application by name or id, or of its source READER/SOURCE;
        returns the version without them, once it is in force. Raises as `update`."""
        options = ChangeOptions(even_if_read=True)
        return self.begin_edit(app, unsubscribe_edit(reader), 0, options).number

    def begin_edit(
        self, app: str, edit: GraphEditRequest, against: int = 0, options: ChangeOptions = NO_OPTIONS
    ) -> ChangeState:
        """Edit the graph in force of an application; see `Client.edit`."""
        return self._wait(self._client.edit(app, edit, against, options))

    def edited(self, app: str, edit: GraphEditRequest, against: int = 0) -> GraphVersion:
        """The version that an edit would make; see `Client.edited`."""
        return self._wait(self._client.edited(app, edit, against))

    def begin_update(
        self, app: str, submission: Submission, against: int = 0, options: ChangeOptions = NO_OPTIONS
    ) -> ChangeState:
        """Change an application while it runs; see `Client.update`."""
        return self._wait(self._client.update(app, submission, against, options))

    def begin_rollback(
        self, app: str, number: int, against: int = 0, options: ChangeOptions = NO_OPTIONS
    ) -> ChangeState:
        """Change an application back to an earlier version; see `Client.roll_back`."""
        return self._wait(self._client.roll_back(app, number, against, options))

    def give_up_change(self, app: str, number: int) -> ChangeState:
        """Have an application go back from a version on trial; see `Client.give_up_change`."""
        return self._wait(self._client.give_up_change(app, number))

    def scale(self, app: str, fragment: str, partitions: int, timeout: str = DEFAULT_TIMEOUT) -> ScalingState:
        """Divide the state of a fragment, or of a processor's fragment, into so many partitions; see
        `drivetrain scale`. Waits until the fragment runs again, and returns how long it took.

        Raises UserError when that is impossible, or has failed, ChangeUnderwayError during a change, and
        UnavailableError when it has not ended after `timeout`; then it continues.

        >>> def wider(client: ChangingBlockingClient) -> int:
        ...     return client.scale("shop", "hourly", partitions=8).paused_ms
        """
        begun = self.begin_scaling(app, fragment, partitions)
        return require_scaled(self.wait_scaled(app, begun, timeout))

    def plan_scaling(self, app: str, fragment: str, partitions: int) -> PlannedScaling:
        """What `scale` would do, with the size of the state; see `Client.plan_scaling`."""
        return self._wait(self._client.plan_scaling(app, fragment, partitions))

    def begin_scaling(self, app: str, fragment: str, partitions: int) -> ScalingState:
        """Begin to divide the state of a fragment again; see `Client.scale`."""
        return self._wait(self._client.scale(app, fragment, partitions))

    def wait_scaled(self, app: str, begun: ScalingState, timeout: str = DEFAULT_TIMEOUT) -> ScalingState:
        """Wait until a scaling has ended; see `Client.wait_scaled`."""
        return self._wait(self._client.wait_scaled(app, begun, timeout))

    def configure(
        self, app: str, values: Mapping[str, str], restore: Iterable[str] = ()
    ) -> tuple[ChangedValue, ...]:
        """Change configuration keys of an application while it runs; see `Client.configure`."""
        return self._wait(self._client.configure(app, values, restore))

    def change_state(self, app: str) -> ChangeState:
        """How an application changes; see `Client.change_state`."""
        return self._wait(self._client.change_state(app))

    def wait_change(self, app: str, number: int, timeout: str = DEFAULT_TIMEOUT) -> ChangeState:
        """Wait until the trial of a version has ended; see `Client.wait_change`."""
        return self._wait(self._client.wait_change(app, number, timeout))

    def versions(self, app: str) -> GraphHistory:
        """The versions of an application's graph; see `Client.versions`."""
        return self._wait(self._client.versions(app))

    def _ended(self, app: str, begun: ChangeState, timeout: str) -> int:
        return require_done(self.wait_change(app, begun.number, timeout))
