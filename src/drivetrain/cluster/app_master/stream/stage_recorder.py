"""The stages of changes, kept in the state directory without holding up an application master.

Called by `application_changes`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain.cluster.app_master.blocking_work import in_thread
from drivetrain.runtime.error_views import error_view

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.cluster.app_master.stream.stored_versions import StoredVersions
    from drivetrain.core.change.change_stages import ChangeStage


class StageRecorder:
    """The stages of the changes of the application of `owner`, written in a thread, one write at a time."""

    def __init__(self, owner: ApplicationMaster, stored: StoredVersions) -> None:
        self._owner: Final = owner
        self._stored: Final = stored
        self._to_write: tuple[int, tuple[ChangeStage, ...]] | None = None
        self._is_writing = False
        self.known: tuple[ChangeStage, ...] = ()
        """Those of the change that is resumed."""

    def stages(self, _number: int) -> tuple[ChangeStage, ...]:
        """Those that an earlier application master has kept."""
        return self.known

    def note_stages(self, number: int, stages: tuple[ChangeStage, ...]) -> None:
        """Keep these, soon."""
        self._to_write = number, stages
        self._write()

    def _write(self) -> None:
        if self._is_writing or self._to_write is None:
            return
        (number, stages), self._to_write, self._is_writing = self._to_write, None, True
        in_thread(self._owner, lambda: self._stored.note_stages(number, stages), self._written, self._failed)

    def _written(self, _: None) -> None:
        self._is_writing = False
        self._write()

    def _failed(self, error: Exception) -> None:
        self._owner.note(error_view(error))  # nothing depends on it
        self._written(None)
