"""Decides, in an object store, which waiting files become visible next: once for all processes.

The problem: waiting files are joined, and how depends on the process that does it and on the time. A process
that was suspended in between would show files that its successor has joined differently: results twice.

The design: a process first creates a record that names the files that become visible and their parts, and
then makes them. Each record has the number after the one before (see `numbered_records`), so only one process
decides what comes next, and a successor appends a record of its own before it looks at what waits: the former
process can then decide nothing more. What was decided and may not have been done is in the newest record, and
whoever continues does it again: the same parts make the same file, which is created only if it does not
exist.

Such a file may be made when the application has started over meanwhile (`--fresh`), and its results are gone.
The record with which it starts over names those files. No file of the new state gets such a name, and
whoever looks deletes them.

    <dir>/_drivetrain/showings/<number>.json      the claim of the process, and the groups of files

Invariants:

1. No batch is in two groups, of all records.
2. A process decides only after it has done what the newest record says.
3. What a state that is gone had decided is no result of the current one: `published_files` leaves it out, and
   the next process that shows something deletes it.

Called by `stored_rolling` and `publication_manifest`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from typing import Final

import msgspec
import pyarrow.fs as pafs

from drivetrain.connectors.files.numbered_records import NumberedRecords
from drivetrain.connectors.files.output_ownership import OURS, SHOWINGS
from drivetrain.errors import InputError
from drivetrain.runtime.checkpoints.checkpoint_copy import IF_TAKEN_OVER, TakenOverError

MOST_NAMES: Final = 1_000
"""How many names of former processes' files a record repeats: each takeover adds a few."""


class ShownGroup(msgspec.Struct, frozen=True):
    """Files that become one visible file, `name`; `parts` are their paths below the sink's directory.

    Each part begins with a header of `header_bytes`.
    """

    name: str
    header_bytes: int
    parts: tuple[str, ...]


class Showing(msgspec.Struct, frozen=True):
    """A record: the claim of the process that made it, and what it has decided.

    `late` are names of files that a former process had decided, and may still make; `gone` are those of them
    whose application has started over since.
    """

    claim: str
    groups: tuple[ShownGroup, ...] = ()
    late: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


class Showings:
    """The records of one sink."""

    def __init__(self, filesystem: pafs.FileSystem, directory: str) -> None:
        self._where: Final = directory
        self._records: Final = NumberedRecords(filesystem, f"{directory}/{OURS}/{SHOWINGS}")
        self._number: int | None = None
        """The number of the newest record that this process knows."""
        self._late: tuple[str, ...] = ()
        self._gone: tuple[str, ...] = ()

    @property
    def gone(self) -> tuple[str, ...]:
        """The names of files that a process of a state that is gone may still make, as of the newest record
        that was read: they are never shown."""
        return self._gone

    def read_gone(self) -> tuple[str, ...]:
        """The same, as of the newest record now."""
        self._newest()
        return self._gone

    def is_empty(self) -> bool:
        """Whether there is no record yet."""
        return self._records.newest() is None

    def decided_last(self) -> Set[str] | None:
        """The names of the files that the newest record has decided; None if there is none."""
        found = self._newest()
        return None if found is None else {group.name for group in found[1].groups}

    def undone(self, claims: Collection[str], claim: str) -> tuple[ShownGroup, ...]:
        """What the newest record has decided, when this process looks for the first time; () otherwise.

        `claims` are those that this process continues, `claim` its own. Raises TakenOverError when the record
        is of another one.
        """
        if self._number is not None:
            return ()
        found = self._newest()
        if found is None:
            return self.undone(claims, claim) if not self._append(0, Showing(claim)) else ()
        number, showing = found
        if showing.claim not in claims:
            raise self._taken(showing)
        self._number = number
        return showing.groups

    def decide(self, groups: Sequence[ShownGroup], claims: Collection[str], claim: str) -> bool:
        """Decide on these groups; False if another process of the same claim was faster: look again.

        Call it after `undone` and when that is done. Raises TakenOverError.
        """
        if self._number is None:
            return False
        if self._append(self._number + 1, Showing(claim, tuple(groups))):
            return True
        self.require_own(claims)
        self._number = None
        return False

    def done(self, claims: Collection[str], claim: str) -> None:
        """Note that what `undone` returned is done; raises TakenOverError.

        A former process may still do it once more, and for readers it would look unfinished.
        """
        assert self._number is not None
        if not self._append(self._number + 1, Showing(claim)):
            self.require_own(claims)
            self._number = None

    def take_over(self, claim: str, *, is_copied: bool) -> None:
        """Append a record, after which no process of another claim can decide anything.

        With `is_copied` the claim is for an application's copied checkpoints, and raises TakenOverError if a
        later one was here.
        """
        while True:
            found = self._newest()
            number, before = (-1, Showing(claim)) if found is None else found
            if is_copied and before.claim > claim:
                raise self._taken(before)
            if self._append(number + 1, Showing(claim, before.groups), late=_names(before)):
                self._number = None  # what was decided may not have been done
                return

    def begin_anew(self, claim: str, *, is_copied: bool) -> None:
        """Append a record that has decided nothing, if there are any: of a state that is gone.

        Raises TakenOverError if the newest is of a later claim.
        """
        while (found := self._newest()) is not None:
            if is_copied and found[1].claim > claim:
                raise self._taken(found[1])
            if self._append(found[0] + 1, Showing(claim), gone=(*found[1].late, *_names(found[1]))):
                self._number, self._late = None, ()
                return

    def require_own(self, claims: Collection[str]) -> None:
        """Raise TakenOverError when the newest record is not of one of these claims."""
        found = self._newest()
        if found is not None and found[1].claim not in claims:
            raise self._taken(found[1])

    def _append(
        self, number: int, showing: Showing, late: tuple[str, ...] = (), gone: tuple[str, ...] = ()
    ) -> bool:
        """Append a record after the newest that was read; `late` and `gone` are names that it adds."""
        late = () if gone else _newest_names((*self._late, *late))
        gone = _newest_names((*self._gone, *gone))
        whole = msgspec.structs.replace(showing, late=late, gone=gone)
        if not self._records.append(number, msgspec.json.encode(whole)):
            return False
        self._number, self._late, self._gone = number, late, gone
        return True

    def _newest(self) -> tuple[int, Showing] | None:
        found = self._records.newest()
        if found is None:
            return None
        try:
            showing = msgspec.json.decode(found[1], type=Showing)
            self._late, self._gone = showing.late, showing.gone
            return found[0], showing
        except msgspec.DecodeError as error:
            raise InputError(
                "the record of what a file sink shows is damaged",
                where=f"{self._where}, record {found[0]}",
                got=str(error),
                remedy="restore it from a backup, or start over with --fresh",
            ) from error

    def _taken(self, showing: Showing) -> TakenOverError:
        return TakenOverError(
            "another process has continued this application, and publishes its results",
            where=self._where,
            got=f"a record of its claim {showing.claim or 'without a name'}",
            remedy=IF_TAKEN_OVER,
        )


def _newest_names(names: Sequence[str]) -> tuple[str, ...]:
    """Each name once, and of many the last: a process that slept while so many followed it is not awaited."""
    return tuple(dict.fromkeys(names))[-MOST_NAMES:]


def _names(showing: Showing) -> tuple[str, ...]:
    return tuple(group.name for group in showing.groups)
