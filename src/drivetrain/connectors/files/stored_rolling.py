"""The waiting files of a sink in an object store, of which several processes may believe that they are
theirs.

The problem: see `prepared_folders` and `showings`: a process that was taken for lost may wake at any moment.

The design: a prepared batch stays in the folder of its process until it is visible; it counts when the last
batch that its transaction publishes is not before it. Files that are due are decided by a record, and then
made: a single one is moved to its name, several are joined on the local disk and uploaded under theirs, if
that is free. Then the parts are deleted. Batches that count at once (without transactions) wait in `rolling`
as they do on other file systems.

What if we die here: after the record, its files are made by the next process. A file that was made has lost
some of its parts, or they are deleted now.

Invariants:

1. A part is deleted only when the file that it belongs to is visible.
2. No file becomes visible that the newest record does not name.

Called by the file sink, which ensures that only one thread at a time uses it.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence, Set

import pyarrow.fs as pafs

from drivetrain.connectors.files.output_ownership import WAITING, OutputDirectory, refusals_named
from drivetrain.connectors.files.partitioned_files import PartitionedFiles
from drivetrain.connectors.files.prepared_folders import ANEW, PreparedFolders
from drivetrain.connectors.files.publication_manifest import NONE, last_published
from drivetrain.connectors.files.rolling import Rolling, Waiting
from drivetrain.connectors.files.showings import Showings, ShownGroup
from drivetrain.connectors.files.staging import Target, join_files
from drivetrain.errors import OutputError
from drivetrain.runtime.whole_files import delete_if_there, staging_files, staging_folder

GONE_LOOK_S = 60.0
"""The shortest time between two looks for files of a state that is gone."""
_TRIES = 5
_LAST = re.compile(r"(\d{8,}\.[^/]*)$")


class StoredRolling(Rolling):
    """The waiting files of one sink; see the module's docstring."""

    def __init__(
        self,
        directory: OutputDirectory,
        sink_id: str,
        target: Target,
        partitions: PartitionedFiles | None,
        folders: PreparedFolders,
        *,
        size_bytes: int,
        age_ms: int | None,
    ) -> None:
        super().__init__(directory, sink_id, target, partitions, size_bytes=size_bytes, age_ms=age_ms)
        self.folders = folders
        self.showings = Showings(directory.filesystem, directory.path)
        self.counted = NONE
        """The last prepared batch that counts as published."""
        self._has_rolled = True
        """Whether there may be files in the folder `rolling`."""
        self._is_open = False
        self._looked_s = -math.inf
        """When this process last looked for files of a state that is gone."""

    # -- prepared batches --------------------------------------------------------------------------------

    def prepared(self) -> dict[int, str]:
        """The paths of the prepared batches that do not count yet."""
        return {batch: info.path for batch, info in self.folders.files().items() if batch > self.counted}

    def prepare(self, aside: str, waiting: str, staged: pafs.FileSystem) -> None:
        """Keep the finished file `aside` as a prepared batch."""
        self.folders.keep()
        self._directory.filesystem.create_dir(self.folders.own, recursive=True)
        try:
            self._directory.publish(aside, f"{self.folders.own}/{waiting}", staged)
        except FileNotFoundError:
            self.showings.require_own(self.folders.claims)  # a successor has deleted the folder
            raise

    def count(self, published: int, last: int) -> dict[int, int]:
        """Have the prepared batches count up to `last`; returns their numbers of rows."""
        before, self.counted = max(published, self.counted), max(last, self.counted)
        names = {batch: info.base_name for batch, info in self.folders.files().items()}
        return {batch: int(name.partition(".")[0]) for batch, name in names.items() if before < batch <= last}

    # -- what becomes visible ----------------------------------------------------------------------------

    def take(self, aside: str, waiting: str, staged: pafs.FileSystem | None = None) -> None:
        """Move the finished file `aside` to the waiting ones, under that name."""
        super().take(aside, waiting, staged)
        self._has_rolled = True

    def show(self, released: int | None = None, *, ends: bool = False) -> None:
        """Decide which files are due, and make them."""
        while True:
            self.finish()
            waiting = self.waiting()
            self._known_s = {one.path: self._known_s.get(one.path, time.monotonic()) for one in waiting}
            waiting = [one for one in waiting if released is None or one.last <= released]
            groups = [self._group(due) for due in self._due(waiting, ends=ends)]
            if not groups:
                return
            if self.showings.decide(groups, self.folders.claims, self.folders.claim):
                break
        self._make(groups)
        self.folders.forget_empty()

    def finish(self) -> None:
        """Make what was decided, and not done; delete what a state that is gone had decided."""
        if not self._is_open and self.showings.is_empty():
            self._settle_former_format()
        self._is_open = True
        groups = self.showings.undone(self.folders.claims, self.folders.claim)
        self._drop_gone()
        if self._partitions is not None:
            self._again(self._partitions.finish)
        if groups:
            shown = {path.rpartition("/")[2] for path in self._directory.published()}
            self._make(groups, shown)  # divided twice, a file looks unfinished to readers
            self.showings.done(self.folders.claims, self.folders.claim)

    def begin_anew(self) -> None:
        """Begin with an empty directory: what earlier records have decided is gone."""
        if not self.showings.is_empty():
            self.folders.begin_anew()
            claim = self.folders.claim
            self.showings.begin_anew(claim, is_copied=not claim.startswith(ANEW))
        self.counted, self._looked_s = NONE, -math.inf

    def require_own(self) -> None:
        """Raise TakenOverError if another process decides what becomes visible."""
        self.showings.require_own(self.folders.claims)

    def drop_gone(self) -> None:
        """Delete files that a process of a state that is gone has made since."""
        self.showings.read_gone()
        self._looked_s = -math.inf
        self._drop_gone()

    def _drop_gone(self) -> None:
        gone = set(self.showings.gone)
        if not gone or time.monotonic() - self._looked_s < GONE_LOOK_S:
            return
        self._looked_s = time.monotonic()
        paths = self._directory.published()
        if self._partitions is not None:
            paths += [self._partitions.whole(name) for name in self._partitions.names()]
        for path in paths:
            if path.rpartition("/")[2].removesuffix(WAITING) in gone:
                delete_if_there(self._directory.filesystem, path)

    def take_over(self, claim: str, last: int, *, is_copied: bool) -> None:
        """Continue a former process, which may still run: its batches up to `last` count."""
        self.showings.take_over(claim, is_copied=is_copied)
        self.folders.succeed(claim, last)

    def _group(self, due: Sequence[Waiting]) -> ShownGroup:
        first, last = due[0], due[-1]
        name = first.name
        if len(due) > 1:
            name = f"{self._stem}{first.life}{first.first:08d}-to{last.last:08d}{first.extension}"
        while name in self.showings.gone:
            name = _LAST.sub(r"0\1", name)  # the same number, in another name
        start = len(self._directory.path) + 1
        return ShownGroup(name, first.header_bytes, tuple(one.path[start:] for one in due))

    def _make(self, groups: Sequence[ShownGroup], shown: Set[str] = frozenset()) -> None:
        """Make files, except those that are `shown`, and delete their parts."""
        there = {one.path for one in self._all(counted_only=False)}
        for group in groups:
            parts = [f"{self._directory.path}/{part}" for part in group.parts]
            if group.name not in shown and all(part in there for part in parts):
                self._make_one(group, parts)
            for part in parts:
                if part in there:
                    delete_if_there(self._directory.filesystem, part)

    def _make_one(self, group: ShownGroup, parts: list[str]) -> None:
        path = f"{self._directory.path}/{group.name}"
        try:
            if len(parts) > 1:
                self._join(group, parts)
            elif self._partitions is not None:
                self._partitions.show(parts[0], group.name)
            else:
                with refusals_named(path):
                    self._directory.publish(parts[0], path)
        except (FileNotFoundError, OutputError) as error:
            if not is_missing(error):
                raise
            # Another process has made it meanwhile: a successor, a former one, or one of the same claim.
            self.showings.require_own(self.folders.claims)
            if self._partitions is not None:  # or has only moved it to where it is divided
                self._again(self._partitions.finish)
            if group.name not in {shown.rpartition("/")[2] for shown in self._directory.published()}:
                raise

    def _join(self, group: ShownGroup, parts: list[str]) -> None:
        filesystem = self._directory.filesystem
        staging = staging_files(filesystem)
        folder = staging_folder(filesystem, self._joining)
        whole = f"{folder}/whole"
        staging.create_dir(folder, recursive=True)
        try:
            join_files(parts, group.header_bytes, self._target, whole)
            if self._partitions is not None:
                self._partitions.show(whole, group.name, staging)
            else:
                self._directory.publish(whole, f"{self._directory.path}/{group.name}", staging)
        finally:
            staging.delete_dir(folder)

    def _again(self, call: Callable[[], None]) -> None:
        for _ in range(_TRIES):
            try:
                call()
            except (FileNotFoundError, OutputError) as error:
                if not is_missing(error):
                    raise
                continue  # a former process was faster
            return
        call()

    def _settle_former_format(self) -> None:
        """Delete what a process without records had made visible, or joined, when it died."""
        self._delete_parts()
        self._delete_shown()
        shown = last_published(self._directory.filesystem, self._directory.path, self._stem)
        shown = max([shown, *(one.last for one in super()._all())])
        for batch, info in self.folders.files().items():
            if batch <= shown:
                delete_if_there(self._directory.filesystem, info.path)

    def _all(self, *, counted_only: bool = True) -> list[Waiting]:
        rolled = super()._all() if self._has_rolled else []
        self._has_rolled = bool(rolled)
        prepared = self.folders.files().items()
        infos = [info for batch, info in prepared if batch <= self.counted or not counted_only]
        return rolled + [found for info in infos if (found := self._waiting(info)) is not None]


def is_missing(error: BaseException) -> bool:
    """Whether an error is that of an object that is gone."""
    return isinstance(error, FileNotFoundError) or isinstance(error.__cause__, FileNotFoundError)
