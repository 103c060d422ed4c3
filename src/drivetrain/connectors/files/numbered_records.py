"""A series of records, of which the newest counts.

The problem: a file, or an object in a store, cannot be replaced only if it has not changed, so a process that
was suspended while it replaced one would bring back an old state when it wakes.

The design: each record is a file of its own, with a number, and is created only if there is none of its
number. Older ones are deleted, so their numbers may be free again: a process that has created a record also
looks for later ones.

Invariants:

1. Of two processes that append after the same record, one succeeds.
2. A process whose `append` succeeded created the newest record; it is the newest for all who look afterwards.
3. The newest record is never deleted.

Called by `publication_manifest` and `showings`.
"""

from __future__ import annotations

import re

import pyarrow.fs as pafs

from drivetrain.errors import InternalError
from drivetrain.runtime.whole_files import create_file, delete_if_there, read_whole_file

_KEPT = 2
"""How many records stay: a process may be reading the one before the newest."""
_TRIES = 10


class NumberedRecords:
    """The records `<stem><number>.json` in a folder of an object store, of HDFS, or of this machine."""

    def __init__(self, filesystem: pafs.FileSystem, folder: str, stem: str = "") -> None:
        self._files = filesystem
        self._folder = folder
        self._stem = stem
        self._name = re.compile(rf"{re.escape(stem)}(\d{{20}})\.json")

    def newest(self) -> tuple[int, bytes] | None:
        """The newest record with its number; None if there is none."""
        for _ in range(_TRIES):
            numbers = self._numbers()
            if not numbers:
                return None
            try:
                return max(numbers), read_whole_file(self._files, self._path(max(numbers)))
            except FileNotFoundError:  # there are newer ones by now
                continue
        raise InternalError("a record is replaced faster than it is read", where=self._folder)

    def append(self, number: int, content: bytes) -> bool:
        """Create the record of this number; False if another process was faster, and this one changed nothing
        that counts."""
        if not create_file(self._files, self._path(number), content):
            return False
        numbers = self._numbers()
        if max(numbers, default=number) > number:
            return False
        for older in numbers:
            if older <= number - _KEPT:
                delete_if_there(self._files, self._path(older))
        return True

    def _numbers(self) -> list[int]:
        selector = pafs.FileSelector(self._folder, allow_not_found=True)
        found = (self._name.fullmatch(info.base_name) for info in self._files.get_file_info(selector))
        return sorted(int(name[1]) for name in found if name is not None)

    def _path(self, number: int) -> str:
        return f"{self._folder}/{self._stem}{number:020d}.json"
