"""States that the queries of simulated shells keep, and what each of them must hold.

Design: a query of a source keeps every message that it has taken, divided into partitions, in files as Spark
names them: what a batch has added (`<n>.changelog`), or a state as a whole (`<n>.zip`), which is empty here.
A change to another trunk drops that state. Which messages a state must hold follows from the records of
versions alone: all that were taken by versions that begin with the same state.

1. A query reads the state that its version begins with, or continues: no message of another one, and each
   message of its own.
2. The files of a state are there, from the newest whole one on.

Called by `shell_engine` and `shell_world`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.trunks import has_same_trunk
from drivetrain.runtime.graph_versions import GraphVersions
from drivetrain.runtime.state.dropped_state import DroppedState
from drivetrain.spark.run import change_proposal


class StateEntries:
    """The states of one application, whose state directory `state` finds."""

    def __init__(self, state: Callable[[], Path | None]) -> None:
        self.wrong: list[str] = []
        """A query that fails may be taken for the fault of its version, so violations are kept here."""
        self.looked_at = self.dropped = self.restored = 0
        """How often a state with messages was compared, was dropped, and came back."""
        self._state = state
        self._taken: dict[str, dict[int, tuple[int, list[int]]]] = {}  # by fragment and batch

    def begins(self, checkpoint: Path, partitions: int, batch: int, version: int) -> None:
        """A batch reads its state."""
        fragment = checkpoint.parent.name
        found = sorted(row for p in range(partitions) for row in self._read(checkpoint, p, batch))
        origin = self._origin(version, fragment)
        batches = self._taken.setdefault(fragment, {})
        wanted = sorted(
            row
            for b, (by, rows) in batches.items()
            if b < batch and self._origin(by, fragment) == origin
            for row in rows
        )
        self.looked_at += bool(wanted)
        if found != wanted:
            extra, lost = sorted(set(found) - set(wanted)), sorted(set(wanted) - set(found))
            self.wrong.append(
                f"batch {batch} of {fragment}, by version {version}, has {extra} too much, and lacks {lost}"
            )

    def ends(self, checkpoint: Path, partitions: int, batch: int, version: int, rows: list[int]) -> None:
        """A batch has been computed: its state is written before it is committed."""
        for partition in range(partitions):
            place = _place(checkpoint, partition)
            place.mkdir(parents=True, exist_ok=True)
            aside = place / f".{batch + 1}.aside.tmp"
            aside.unlink(missing_ok=True)  # it may be a link
            aside.write_text(json.dumps([row for row in rows if row % partitions == partition]))
            os.rename(aside, place / f"{batch + 1}.changelog")
        self._taken[checkpoint.parent.name][batch] = (version, rows)

    def _read(self, checkpoint: Path, partition: int, number: int) -> list[int]:
        place, rows = _place(checkpoint, partition), list[int]()
        while number > 0 and not (place / f"{number}.zip").exists():
            file = place / f"{number}.changelog"
            if not file.exists():
                self.wrong.append(f"{checkpoint.parent.name} lacks state {number} of partition {partition}")
                break
            rows += json.loads(file.read_text() or "[]")
            number -= 1
        return rows

    def _origin(self, number: int, fragment: str) -> int:
        """The version that began with the state of a fragment that a version continues; 0: the first one."""
        state = self._state()
        assert state is not None
        stored = GraphVersions(state)
        while number:
            record = stored.version(number)
            if fragment in record.drops:
                return number
            number = record.follows
        return 0


def _place(checkpoint: Path, partition: int) -> Path:
    return checkpoint / "state" / "0" / str(partition)


def drop_with_trunks(patched: pytest.MonkeyPatch, states: StateEntries) -> None:
    """Have each change of a trunk drop the state, as if it did not fit; count what happens to states."""

    def dropped(old: GraphVersion, new: GraphVersion, *_: Any, **__: Any) -> tuple[str, ...]:
        return tuple(id for id in new.fragments if id in old.fragments and not has_same_trunk(old, new, id))

    drop, restore = DroppedState.drop, DroppedState.restore

    def counted_drop(own: DroppedState, *given: Any) -> None:
        states.dropped += 1
        drop(own, *given)

    def counted_restore(own: DroppedState, *given: Any) -> None:
        states.restored += 1
        restore(own, *given)

    patched.setattr(change_proposal, "dropped_states", dropped)
    patched.setattr(DroppedState, "drop", counted_drop)
    patched.setattr(DroppedState, "restore", counted_restore)
