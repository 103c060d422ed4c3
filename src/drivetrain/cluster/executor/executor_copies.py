"""An executor's part in a state that is in an object store: it begins with the store's newest checkpoint.

Problem: all executors of such an application share a directory of their worker's machine, which may have no
state, or an old one. And one that is cut off from its application master may not know that another worker
continues the application.

Design: the executor that prepares the application settles the directory with the store, and claims the next
number. The application master adds checkpoints to that claim (`application_copies`). Each executor looks
every few seconds whether the claim is still the newest, and ends if it is not.

A life that begins with a savepoint is copied before this executor answers that it was prepared. The registry
then notes that the request for it was fulfilled, and only after that a fragment runs. So another worker
begins with the copy; or with the savepoint again, when nothing has run. A life of a replay is copied, too
(`preparing`); the former one is continued here first, if its state is elsewhere, so that what its last
checkpoint has is published.

Claims name the epoch of their application master. The leader has replaced a former epoch of the same
submission, so its lease is not waited for; and an executor of a former epoch, which wakes late, claims
nothing. While any other process has the application, an executor waits for some time.

Called by `spark_work`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from drivetrain.config import Config
from drivetrain.runtime.checkpoints.checkpoint_copy import Claimant, StillRunningError
from drivetrain.runtime.checkpoints.checkpoint_copying import CheckpointCopying
from drivetrain.runtime.checkpoints.checkpoint_mode import refuse_copies
from drivetrain.runtime.checkpoints.continuation_watch import ContinuationWatch, look
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.state_place import is_remote
from drivetrain.spark.run.copying import settle_with_store


class ExecutorCopies:
    """The copied checkpoints of one executor's application; nothing happens unless its state is remote."""

    def __init__(self, config: Config, by: Claimant = Claimant()) -> None:
        self._config: Final = config
        self._by: Final = by
        self._is_remote: Final = is_remote(config)
        self.report: Callable[[BaseException], None] = lambda _: None
        """Called, in another thread, when another process has continued the application."""
        self.copies: CopiedCheckpoints | None = None
        """Those that this executor has begun with or joined."""
        self._watch: ContinuationWatch | None = None

    @property
    def are_changes_own(self) -> bool:
        """Whether the store has changes that were made by the same submission while it ran."""
        return self.copies is not None and self.copies.are_changes_own

    def begin(
        self,
        rundir: RunDirectory,
        wait_s: float,
        *,
        fresh: bool,
        savepoint: str | None,
    ) -> bool:
        """Make sure that the state here is what the store continues, for the executor that prepares it.

        Returns whether the application has finished. Waits about `wait_s` for another process that has it.
        Raises UnavailableError after that, and UserError or ConfigError if it cannot begin as it is asked to.
        """
        refuse_copies(self._config)
        if not self._is_remote:
            return False
        until_s = time.monotonic() + wait_s
        while True:
            self.copies = copies = CopiedCheckpoints.of(rundir, self._config, self._by)
            assert copies is not None
            try:
                return settle_with_store(rundir, copies, fresh=fresh, savepoint=savepoint)
            except StillRunningError:
                if time.monotonic() > until_s:
                    raise

    def has_state_elsewhere(self, rundir: RunDirectory) -> bool:
        """Whether the state is in the store, and not in this directory."""
        newest = None if self.copies is None or rundir.started else self.copies.newest()
        return newest is not None and newest.manifest is not None

    def copy_life(self, rundir: RunDirectory) -> None:
        """Copy the life that has just begun with a savepoint, before the answer that it has.

        Raises the errors of `CopiedCheckpoints.add`.
        """
        if self.copies is not None:
            CheckpointCopying(rundir, self.copies).copy_life()

    def join(self, rundir: RunDirectory) -> None:
        """Continue what another executor has claimed; raises TakenOverError if it is no longer the newest."""
        if self._is_remote and self.copies is None:
            copies = CopiedCheckpoints.of(rundir, self._config, self._by)
            if copies is not None:
                copies.resume()
            self.copies = copies

    def watch(self) -> None:
        """Look from now on whether another process has continued the application."""
        if self.copies is not None and self._watch is None:
            self._watch = ContinuationWatch(partial(look, self.copies), lambda error: self.report(error))

    def newest(self, rundir: RunDirectory) -> CopiedCheckpoints | None:
        """The copies as the application master has left them, to conclude; raises TakenOverError."""
        copies = CopiedCheckpoints.of(rundir, self._config, self._by) if self._is_remote else None
        if copies is not None:
            copies.resume()
        return copies

    def close(self) -> None:
        """Stop looking."""
        if self._watch is not None:
            self._watch.close()
