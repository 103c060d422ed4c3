"""Starts an application from a savepoint.

Problem: the application starts in another directory, on another machine or with another number of cores,
perhaps with a changed graph. Meanwhile the saved application may have continued, and published under the
batch numbers that this one would use.

Design: `OpenedSavepoint` verifies all of the savepoint before anything is written. `bring_into` lays it out
as if the application had run here: snapshots, from which the fragments' directories are made as in a restore
(`restoring`), the last entry that each channel's reader has taken, the stores of sources, the notes of sinks,
and a committed transaction. It belongs to a new life (`core.replay.replay`), so outputs never mistake a batch
for one that the saved application has published since. For this reason the notes of which numbers outputs
know a fragment's batches by are left out, and those of which versions of the graph they ran with: versions,
too, have other numbers here.

What if we die here: the directory stays marked as being cleared until the life has begun; the next start
clears it.

Invariants:

1. Nothing is written before all of the savepoint has been read and verified.
2. The new life begins only when all of it is there.

Called by `execution`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.api.moments import moment_text
from drivetrain.config import Config
from drivetrain.core.change.graph_version import state_fits, state_shape
from drivetrain.core.checkpoint.transaction import Phase, Transaction
from drivetrain.core.replay.replay import Life
from drivetrain.durable import sync, writing
from drivetrain.errors import UserError
from drivetrain.private_files import Writers, require_trusted_tree
from drivetrain.runtime import batch_versions
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.checkpoints.change_files import lay_out
from drivetrain.runtime.checkpoints.checkpoint_parts import FRAGMENTS, TABLES
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.savepoint import positions_in
from drivetrain.runtime.checkpoints.savepoint_manifest import Manifest, SavepointError, copied, verified
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.checkpoints.stored_savepoint import fetched_into, local_savepoint
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.clock_file import ClockFile
from drivetrain.runtime.fragment_places import FIRST_BATCH
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.checkpoints.entries import noted_entries
from drivetrain.spark.connector.publishing import abort_after
from drivetrain.spark.connector.sink import ClaimingSinkWriter

if TYPE_CHECKING:
    from drivetrain.core.plan.plan import Plan
    from drivetrain.spark.connector.sink import SinkWriter

_LIFE: Final = 1
"""The first life of transactions in a new directory."""


@contextmanager
def opened_savepoint(
    place: str | None,
    plan: Plan,
    rundir: RunDirectory,
    config: Config,
    *,
    fresh: bool,
    replay_from_ms: int | None,
    copies: CopiedCheckpoints | None = None,
) -> Iterator[OpenedSavepoint | None]:
    """The verified savepoint at a place, copied here from an object store if need be; None without a place.

    Without a place and without a state here, it is the newest of `copies`. Raises an error if the application
    cannot start from it.
    """
    aside = rundir.path.with_name(f".{rundir.path.name}.fetched")
    begins = fresh or rundir.started or replay_from_ms is not None
    copy = None if place is not None or copies is None or begins else copies.begin()
    if copies is not None and copy is not None and copy.manifest is not None:
        with fetched_into(aside, lambda: copies.fetch(copy, aside)):
            saved = OpenedSavepoint(aside, rundir.writers, copies.place, copied_by=copy.host)
            saved.changes = copies.changes_of(copy)
            saved.require_fits(plan, rundir, fresh=fresh)
            yield saved
        return
    if place is None:
        yield None
        return
    if replay_from_ms is not None:
        raise UserError(
            "an application cannot start from a savepoint and with a replay",
            got="both",
            remedy="start from the savepoint first, then replay",
        )
    with local_savepoint(place, aside, StoreSettings.of(config)) as directory:
        saved = OpenedSavepoint(directory, rundir.writers, place if directory == aside else None)
        saved.require_fits(plan, rundir, fresh=fresh)
        yield saved


class OpenedSavepoint:
    """A complete savepoint at `place`; raises SavepointError if it is damaged or incomplete.

    Raises UserError when users other than `writers` can write there. `origin` is where it was fetched from,
    if that is elsewhere. With `copied_by`, the name of a machine, it is the newest checkpoint of an
    application that has published nothing after it: what starts is the same life.
    """

    def __init__(
        self,
        place: str | Path,
        writers: Writers = Writers.OWNER,
        origin: str | None = None,
        copied_by: str | None = None,
    ) -> None:
        self.place: Final = Path(place).absolute()
        self._origin: Final = str(self.place) if origin is None else origin
        self._copied_by: Final = copied_by
        require_trusted_tree(self.place, "the savepoint", writers)
        self.manifest: Final[Manifest] = verified(self.place)
        self.changes: Mapping[str, bytes] = {}
        """How the application has changed while it ran, if it is the same life."""

    def require_fits(self, plan: Plan, rundir: RunDirectory, *, fresh: bool) -> None:
        """Raise unless this application can start from here: SavepointError; UserError if it has a state."""
        if not fresh and rundir.started:
            raise UserError(
                "the application already has a state here",
                where=str(rundir.path),
                expected="none: it starts with the state of the savepoint",
                remedy="use another --state-dir, or --fresh to delete that state and its published results",
            )
        shape, known = state_shape(plan), self.manifest.state
        if not state_fits(known, plan):
            raise SavepointError(
                "the savepoint belongs to an application with another state",
                where=str(self.place),
                expected=_difference(known, shape, "is in the savepoint only"),
                got=_difference(shape, known, "is in the application only"),
                remedy="processors without a state and sinks may be changed; the sources of a stateful "
                "processor, its event times and the processor itself must be unchanged",
            )

    def notice(self, spark_partitions: int) -> str:
        """A notice for the user: what the application starts from, and what cannot change."""
        saved = self.manifest
        what = "savepoint" if self._copied_by is None else "copy of the newest checkpoint at"
        text = (
            f"continues from the {what} {self._origin}: checkpoint {saved.record.txid} of {saved.app_id}, "
            f"made {moment_text(saved.made_at_ms)}{f' on {self._copied_by}' if self._copied_by else ''}"
        )
        fixed = {id: n for id, n in saved.shuffle_partitions.items() if n != spark_partitions}
        if fixed:
            numbers = ", ".join(f"{id} in {n}" for id, n in sorted(fixed.items()))
            text += f"; state stays divided as it was saved ({numbers} parts)"
        return text

    @property
    def is_copied(self) -> bool:
        """Whether it is a copied checkpoint, which its former process may continue until the claim."""
        return self._copied_by is not None

    @property
    def life(self) -> Life:
        """The life that starts from here."""
        return self.manifest.life.elsewhere() if self._copied_by is None else self.manifest.life

    def drop_later(self, sinks: Mapping[str, SinkWriter], claim: str) -> None:
        """Drop batches that the saved application prepared in these sinks, and that this one runs again.

        `claim` is that of this process.
        """
        fragments = self.manifest.record.fragments.values()
        published = {} if self._copied_by is None else {k: v for f in fragments for k, v in f.sinks.items()}
        for id, sink in sinks.items():
            if isinstance(sink, ClaimingSinkWriter):
                sink.succeed(claim, published.get(id), is_copied=self.is_copied)
            else:
                abort_after(sink, published.get(id))

    def bring_into(self, plan: Plan, rundir: RunDirectory) -> None:
        """Lay everything out in an empty directory, for the life that starts."""
        with writing("what the savepoint holds", rundir.path):
            self._bring_into(plan, rundir)

    def _bring_into(self, plan: Plan, rundir: RunDirectory) -> None:
        saved, files = self.manifest, CheckpointFiles(rundir.home)
        snapshots = Snapshots(files.snapshots)
        for name, file in saved.files.items():
            if self._copied_by is None and _is_numbered(name):
                continue  # the new life has numbers of its own, and has begun no batch
            if copied(self.place / name, self._target(name, rundir, snapshots)) != file:
                raise SavepointError(
                    "the savepoint changed while it was being read",
                    where=str(self.place / name),
                    remedy="make sure that no process writes there, and start again",
                )
        record = saved.record
        for fragment in plan.fragments:
            own, snapshot = rundir.fragment(fragment.id), record.fragments[fragment.id]
            snapshots.place(fragment.id, record.round).mkdir(parents=True, exist_ok=True)
            snapshots.restore(fragment.id, record.round, own)
            for channel, entry in noted_entries(own).items():
                # The fragment has its messages, and its barrier is past.
                store = ChannelStore(rundir.channel(channel))
                store.put_back(msgspec.structs.replace(entry, segments=(), barrier=None))
                store.record_position(fragment.id, entry.number + 1)
            for id, position in positions_in(snapshot.sources).items():
                ChannelStore(rundir.store(id)).record_position(fragment.id, position)
            if snapshot.batch_id >= 0:  # the other fragments have nothing yet that could be lost
                files.lives.note(fragment.id, _LIFE)
                files.lives.note_batch(fragment.id)
        lay_out(rundir.path, self.changes, rundir.writers)
        if saved.clock_ms is not None:
            ClockFile(rundir.home / "clock").write(saved.clock_ms)
        files.persist(
            Transaction(
                txid=record.txid,
                phase=Phase.COMMITTED if self._copied_by is None else Phase.COMMITTING,
                round=record.round,
                life=_LIFE,
                record=record,
            )
        )
        if self._copied_by is None:
            rundir.preparation.note_beginning()
        for path, _, _ in os.walk(rundir.path):
            sync(path)

    def _target(self, name: str, rundir: RunDirectory, snapshots: Snapshots) -> Path:
        top, _, rest = name.partition("/")
        if top == FRAGMENTS:
            fragment, _, file = rest.partition("/")
            return snapshots.place(fragment, self.manifest.record.round) / file
        return (rundir.home if top == TABLES else rundir.path) / name


def _is_numbered(name: str) -> bool:
    """Whether a file of a savepoint has numbers that are only valid in the life that was saved: of versions
    of the graph, or of batches as outputs see them."""
    top, _, rest = name.partition("/")
    return top == FRAGMENTS and rest.partition("/")[2] in (batch_versions.FILE, FIRST_BATCH)


def _difference(shape: Mapping[str, list[str]], other: Mapping[str, list[str]], where: str) -> str:
    """The parts of the state that a shape has and the other lacks, as text."""
    differences = [f"{id}: {', '.join(parts)}" for id, parts in shape.items() if other.get(id) != parts]
    return f"{'; '.join(differences)} {where}" if differences else "the rest is the same"
