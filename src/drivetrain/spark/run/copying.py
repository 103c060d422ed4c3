"""Copies of an application's checkpoints in a run: which applications can have them, and how a run begins.

A former process that was taken for lost notices its successor (see `continuation_watch`), which waits for
that before it drops what was prepared after the checkpoint.

Called by `embedded` and `preparing`, and by executors through `executor_copies`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from drivetrain.api.sources import is_stored_first
from drivetrain.errors import ConfigError, UserError
from drivetrain.runtime.checkpoints import continuation_watch
from drivetrain.runtime.checkpoints.change_files import lay_out
from drivetrain.runtime.checkpoints.checkpoint_mode import refuse_copies
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.state_place import copies_key, copies_place, shared_state_dir

if TYPE_CHECKING:
    from drivetrain.api.graphs.graph import Graph
    from drivetrain.config import Config
    from drivetrain.runtime.run_directory import RunDirectory


def require_copyable(graph: Graph, config: Config, copies: CopiedCheckpoints | None) -> None:
    """Raise ConfigError when checkpoints are to be copied but cannot be, or when copies would not be
    enough."""
    if copies_place(config) is None:
        return
    if copies is None:
        refuse_copies(config)
        shared_state_dir(config)
    stored = [node.id for node in graph.nodes.values() if is_stored_first(node.operation.stream_source)]
    if stored:
        raise ConfigError(
            "messages of a source that can be read only once are on the disk of this machine",
            where=copies_key(config).name,
            got=f"source {', '.join(sorted(stored))}",
            remedy="put the messages into Kafka or files, which can be read elsewhere; or keep the "
            "state on a disk, without copies",
        )


def settle_with_store(
    rundir: RunDirectory,
    copies: CopiedCheckpoints | None,
    *,
    fresh: bool,
    replay_from_ms: int | None = None,
    savepoint: str | None = None,
) -> bool:
    """Make sure that the state here is what the store's newest checkpoint continues; where that is the state,
    clear another one here, and lay out how the application has changed. Returns whether it has finished.

    The last three say how the run is to begin. Raises UnavailableError (also TakenOverError) when another
    process has the application, and UserError if it cannot begin so.
    """
    begins_with = "--replay-from" if replay_from_ms is not None else "--from" if savepoint else None
    if copies is None:
        return False
    if copies.lease is None:
        if not fresh and (begins_with is not None or rundir.finished is None):
            copies.require_own(has_state=rundir.started)
        elsewhere = None if fresh or begins_with or rundir.started else copies.newest()
        return elsewhere is not None and elsewhere.is_finished
    record = None if fresh else CheckpointFiles(rundir.home).transaction()
    was_copied = record is not None and record.record is not None
    newest = copies.newest_elsewhere(has_state=rundir.started, was_copied=was_copied)
    if newest is None or fresh:
        return False
    if newest.manifest is not None and begins_with is not None and not copies.is_own():
        raise UserError(
            "the application already has a state in the store",
            where=copies.place,
            expected=f"none that is not on this machine, with {begins_with}",
            remedy=f"run it without {begins_with}, which brings the state here; or with --fresh, which "
            "deletes it and its published results",
        )
    rundir.clear()
    lay_out(rundir.path, copies.changes_of(newest), rundir.writers)
    return newest.is_finished


def begin_again(rundir: RunDirectory, copies: CopiedCheckpoints) -> None:
    """Clear the state here, which began with what is not the newest checkpoint any more, for another try."""
    rundir.clear()
    newest = copies.begin()
    if newest is not None:
        lay_out(rundir.path, copies.changes_of(newest), rundir.writers)


def wait_for_predecessor() -> None:
    """Wait until a process that was wrongly considered lost has noticed its successor."""
    time.sleep(2 * continuation_watch.LOOK_S)
