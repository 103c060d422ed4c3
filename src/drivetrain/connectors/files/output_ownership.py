"""Ownership of output directories.

The problem: results of two applications in one directory cannot be distinguished afterwards. And results
of an application whose state was deleted would be published a second time, or skipped by mistake.

The design: the first batch writes `_drivetrain/owner.json` with the application's id and a token that is
also kept in the sink's state directory, next to Spark's checkpoint. A later start compares both.

| owner.json | token | meaning |
|---|---|---|
| none, directory empty | - | new: ours from the first batch on |
| none, directory not empty | - | not ours: refused |
| ours | the same | continued after a stop or a crash |
| ours | none or another | our state was deleted, the output was not: refused until `fresh()` |
| another application's | - | refused |

Invariants:

1. `check` changes nothing that a reader can see.
2. Only files that this application published are ever removed.
3. Of several that claim an empty place at the same time, one succeeds; but not on file systems of other
   kinds than this machine's, object stores and HDFS.

Called by the file sink.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from drivetrain.errors import OutputError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects.object_files import objects_of
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.whole_files import (
    create_file,
    delete_if_there,
    full_disk_named,
    is_local,
    publish_bytes,
    publish_file,
    read_whole_file,
)

OURS = "_drivetrain"
SHOWINGS = "showings"
"""The folder of records that outlive a start over; see `showings`."""
PUBLISHED = re.compile(r"part-.+-(?:to)?\d{8,}\.(parquet|csv|json|txt)(\.gz)?")
"""The names of files that are visible to readers."""
WAITING = ".waiting"
"""The names of files that wait end so: readers that look for `**/*.parquet` do not find them."""


class OutputDirectory:
    """The output directory of one sink of one application.

    `require_own` raises LostLockError if another process writes there by now.
    """

    def __init__(
        self,
        uri: str,
        app_id: str,
        state_dir: str,
        stores: StoreSettings,
        partition_by: Sequence[str] = (),
        require_own: Callable[[], None] | None = None,
    ) -> None:
        self.filesystem, self.path = locate(uri, stores)
        self.path = self.path.rstrip("/")
        self.require_own = require_own
        self.writer = uuid.uuid4().hex[:8]
        """Distinguishes files of this process that are not finished from those of others."""
        self._app_id = app_id
        self._partition_by = list(partition_by)
        self._state_fs, self._state_dir = locate(state_dir)

    @property
    def ours(self) -> str:
        """The directory of everything that is hidden from readers."""
        return f"{self.path}/{OURS}"

    @property
    def staging(self) -> str:
        """The directory in which files are written before they are published; hidden from readers."""
        return f"{self.path}/{OURS}/staging"

    @property
    def prepared(self) -> str:
        """The directory of files of batches that are not published yet; hidden from readers."""
        return f"{self.path}/{OURS}/prepared"

    @property
    def rolling(self) -> str:
        """The directory of files of published batches that wait to be joined; hidden from readers."""
        return f"{self.path}/{OURS}/rolling"

    @property
    def joining(self) -> str:
        """The directory in which files are joined; hidden from readers."""
        return f"{self.path}/{OURS}/joining"

    @property
    def dividing(self) -> str:
        """The directory of files that are being divided among partitions; hidden from readers."""
        return f"{self.path}/{OURS}/dividing"

    def publish(self, aside: str, path: str, staged: pafs.FileSystem | None = None) -> None:
        """Move the finished file `aside`, of the file system `staged` or of this one, to `path`.

        Raises LostLockError instead if another process writes here.
        """
        publish_file(self.filesystem, aside, path, staged, require=self.require_own)

    def check(self) -> None:
        """Raise OutputError unless the directory can be ours and is writable."""
        info = self.filesystem.get_file_info(self.path)
        if info.type == pafs.FileType.File:
            raise OutputError(
                "a file exists at the path of the output directory",
                where=self.path,
                expected="a directory, or nothing",
                remedy="remove the file or choose another path",
            )
        owner = self.owner()
        if owner is None:
            self._refuse_other_files()
        elif owner["app_id"] != self._app_id:
            raise OutputError(
                "the directory holds the output of another application",
                where=self.path,
                expected=f"nothing, or output of {self._app_id}",
                got=f"output of {owner['app_id']}",
                remedy="choose another path, or delete the directory if its content is no longer needed",
            )
        elif owner["token"] != self._token() and self.published():
            raise OutputError(
                "the directory holds output of an earlier life of this application, whose state is gone",
                where=self.path,
                expected="output that belongs to the state in the state directory",
                remedy="run with --fresh to remove that output and start over, or choose another path",
            )
        elif owner.get("partition_by", []) != self._partition_by and self.published():
            had = ", ".join(owner.get("partition_by", [])) or "no columns"
            raise OutputError(
                "the output directory is divided by other columns",
                where=self.path,
                expected=f"partition_by={self._partition_by}",
                got=f"files that are divided by {had}",
                remedy="choose another path, restore partition_by, or run with --fresh to start over",
            )
        self._probe()

    def is_claimed(self) -> bool:
        """Whether the directory is ours, and belongs to the current state."""
        owner = self.owner()
        return owner is not None and self._is_ours(owner)

    def owner(self) -> dict[str, Any] | None:
        """The owner that the directory has; None if it has none."""
        text = _read(self.filesystem, f"{self.path}/{OURS}/owner.json")
        return None if text is None else dict(json.loads(text))

    def claim(self, owner: Mapping[str, Any] | None, claim: str = "") -> None:
        """Make the directory ours, durably; call it after `check` and before anything is published.

        `owner` is what `owner` returned before. Files that wait there to be published belong to a deleted
        state, and are removed; but not those of processes whose claims are later than `claim`.
        """
        if owner is not None and self._is_ours(owner):
            return
        if owner is not None:
            self._remove_waiting(claim)
        token = self._token()
        if token is None:
            token = uuid.uuid4().hex
            self._state_fs.create_dir(self._state_dir, recursive=True)
            publish_bytes(self._state_fs, self._token_path(), token.encode())
        self.filesystem.create_dir(f"{self.path}/{OURS}", recursive=True)
        ours = {"app_id": self._app_id, "token": token, "partition_by": self._partition_by}
        content = json.dumps(ours).encode()
        path = f"{self.path}/{OURS}/owner.json"
        is_first_come = objects_of(self.filesystem) is not None or is_local(self.filesystem)
        if not is_first_come or (owner is not None and owner == self.owner()):
            publish_bytes(self.filesystem, path, content, self.require_own)
        elif not create_file(self.filesystem, path, content):
            self.check()  # raises if it is another application
            raise OutputError(
                "another process of this application claims the output directory at the same time",
                where=self.path,
                expected="one process at a time, and one state directory",
                remedy="stop the other one, and run this one again",
            )

    def clear(self) -> None:
        """Remove the files that this application published, if the directory is its own."""
        owner = self.owner()
        if owner is None or owner["app_id"] != self._app_id:
            return
        published = self.published()
        for path in published:
            self.filesystem.delete_file(path)
        self._remove_partitions(published)
        self._remove_ours()
        if self._token() is not None:
            self._state_fs.delete_file(self._token_path())

    def _remove_ours(self) -> None:
        """Remove what is hidden; but a record stays, if there are any: see `showings`."""
        if objects_of(self.filesystem) is None and not self.has_showings():
            self.filesystem.delete_dir(self.ours)
            return
        for info in self.filesystem.get_file_info(pafs.FileSelector(self.ours, allow_not_found=True)):
            if info.type == pafs.FileType.File:
                delete_if_there(self.filesystem, info.path)
            elif info.base_name != SHOWINGS:
                self.filesystem.delete_dir(info.path)

    def is_contended(self, *, is_copied: bool) -> bool:
        """Whether former processes may wake and write here when another machine has continued their
        application, because its checkpoints are copied, now or earlier."""
        if objects_of(self.filesystem) is not None:
            return True
        return is_local(self.filesystem) and (is_copied or self.has_showings())

    def has_showings(self) -> bool:
        """Whether records decide here what becomes visible; see `showings`."""
        info = self.filesystem.get_file_info(f"{self.ours}/{SHOWINGS}")
        return bool(info.type == pafs.FileType.Directory)

    def published(self) -> list[str]:
        """The paths of the published files."""
        return sorted(f"{self.path}/{name}" for name in published_in(self.filesystem, self.path))

    def _remove_partitions(self, published: list[str]) -> None:
        """Remove the directories of partitions that have become empty."""
        if is_local(self.filesystem):
            folders = {parent for path in published for parent in Path(path).parents}
            inside = [folder for folder in folders if Path(self.path) in folder.parents]
            for folder in sorted(inside, key=lambda one: len(one.parts), reverse=True):
                if not any(folder.iterdir()):
                    folder.rmdir()

    def _refuse_other_files(self) -> None:
        selector = pafs.FileSelector(self.path, allow_not_found=True)
        others = [
            info.base_name
            for info in self.filesystem.get_file_info(selector)
            if not info.base_name.startswith(".") and info.base_name != OURS
        ]
        if others:
            shown = ", ".join(sorted(others)[:3]) + (", …" if len(others) > 3 else "")
            raise OutputError(
                "the output directory is not empty, and its files do not belong to this application",
                where=self.path,
                expected="an empty directory, or none",
                got=f"{len(others)} entries: {shown}",
                remedy="choose another path, or empty the directory",
            )

    def _probe(self) -> None:
        """Write and remove a hidden file in the deepest existing part of the path; creates no directory."""
        if not is_local(self.filesystem):
            return
        require_writable(self.path)

    def _is_ours(self, owner: Mapping[str, Any]) -> bool:
        return owner["app_id"] == self._app_id and owner["token"] == self._token()

    def _remove_waiting(self, claim: str) -> None:
        selector = pafs.FileSelector(self.prepared, allow_not_found=True)
        for info in self.filesystem.get_file_info(selector):
            if info.type == pafs.FileType.File:
                self.filesystem.delete_file(info.path)
            elif info.base_name <= claim:
                self.filesystem.delete_dir(info.path)
        for hidden in (self.rolling, self.dividing):
            if self.filesystem.get_file_info(hidden).type == pafs.FileType.Directory:
                self.filesystem.delete_dir(hidden)

    def _token_path(self) -> str:
        return f"{self._state_dir}/output-token"

    def _token(self) -> str | None:
        text = _read(self._state_fs, self._token_path())
        return None if text is None else text.decode()


def published_in(filesystem: pafs.FileSystem, directory: str) -> list[str]:
    """The paths of the published files, relative to a sink's directory: also those in its partitions."""
    infos = filesystem.get_file_info(pafs.FileSelector(directory, allow_not_found=True))
    if any(info.type == pafs.FileType.Directory and "=" in info.base_name for info in infos):
        infos = filesystem.get_file_info(pafs.FileSelector(directory, recursive=True))
    paths = [info.path.removeprefix(f"{directory}/") for info in infos if PUBLISHED.fullmatch(info.base_name)]
    return [path for path in paths if all("=" in folder for folder in path.split("/")[:-1])]


def divided_names(filesystem: pafs.FileSystem, folder: str) -> list[str]:
    """The names of files of which readers may see only some partitions' parts; see `partitioned_files`."""
    infos = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    return sorted(info.base_name.removesuffix(WAITING) for info in infos if info.base_name.endswith(WAITING))


def require_writable(path: str) -> None:
    """Raise `OutputError` unless a local directory could be made; makes none, and leaves nothing behind."""
    existing = path
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".drivetrain-"):
            pass
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: str, error: Exception) -> OutputError:
    """The error for a path that is not writable."""
    return OutputError(
        "the output cannot be written",
        where=path,
        got=str(error),
        remedy="check that the path is a directory on a writable disk and that this user may write there",
    )


@contextlib.contextmanager
def refusals_named(path: str) -> Iterator[None]:
    """Turn an operating system's refusal to write into an OutputError or a DiskFullError."""
    try:
        with full_disk_named(path):
            yield
    except OSError as error:
        raise unwritable(path, error) from error


def _read(filesystem: pafs.FileSystem, path: str) -> bytes | None:
    try:
        if filesystem.get_file_info(path).type != pafs.FileType.File:
            return None
    except NotADirectoryError:
        return None
    try:
        return read_whole_file(filesystem, path)
    except FileNotFoundError:  # another process has started over meanwhile
        return None
