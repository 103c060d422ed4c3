"""Records how far file sinks have published, for readers who want complete transactions of several of them.

The problem: a transaction is many files in several directories, and a file system shows one file at a time.

The design: next to the files is a small manifest with the number of each sink's last published batch. Files
get their names first, and then the manifest is replaced, in one step. Readers that use it (`published_files`)
see complete transactions, of all its sinks at once; readers that list a directory see each file completely,
and may see one sink a moment ahead of the other.

    <home>/_drivetrain/published-<application>.json
        {"transaction": 7, "sinks": {"ledger": {"directory": "ledger", "last": 41}, …}}

In an object store, and where several processes may believe that they publish, it is a series of files
`published-<application>-<number>.json`, of which the newest counts (see `numbered_records`). `home` is the
directory in which the sinks publish `together`, or else the sink's own. "last" is null while batches are
published one by one: then every existing file counts. The same holds for a sink's own directory without a
manifest.

What if we die here: between two names, or before the manifest, the next run publishes the transaction again
(`publishing`), which gives the remaining files their names, and then replaces the manifest.

Invariants:

1. Every file of a batch that the manifest counts exists, except for files that a reader has removed.
2. On a local file system one process at a time changes a manifest, and none of its numbers decreases.

Called by the file sink and by readers.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path

import msgspec
import pyarrow.fs as pafs

from drivetrain.connectors.files.numbered_records import NumberedRecords
from drivetrain.connectors.files.output_ownership import OURS, divided_names, published_in, refusals_named
from drivetrain.connectors.files.showings import Showings
from drivetrain.errors import InputError
from drivetrain.file_lock import FileLock
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects.object_files import objects_of
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.whole_files import is_local, publish_bytes, read_whole_file

_BATCH = re.compile(r"-(?:to)?(\d{8,})\.[^/]*$")
_MANIFEST = re.compile(r"published-(.+?)(?:-(\d{20}))?\.json")
NONE = -1
"""Stands for "no batch yet"."""


class PublishedSink(msgspec.Struct, frozen=True):
    """How far one sink has published: `last` is null while every file counts."""

    directory: str
    last: int | None


class Published(msgspec.Struct, frozen=True):
    """The newest transaction that published anything, and the sinks by id."""

    transaction: int = 0
    sinks: dict[str, PublishedSink] = {}

    def last_of(self, sink_id: str) -> int:
        """The last batch that counts of a sink; NONE if every file counts."""
        sink = self.sinks.get(sink_id)
        return NONE if sink is None or sink.last is None else sink.last


class Manifest:
    """The manifest of one application's sinks under the directory `home`.

    `require_own` raises LostLockError if another process publishes by now. If it `is_contended`, a process
    that is taken for lost may still publish, and the manifest is a series of files.
    """

    def __init__(
        self,
        home: str,
        app_id: str,
        stores: StoreSettings,
        require_own: Callable[[], None] | None = None,
        *,
        is_contended: bool = False,
    ) -> None:
        self._require_own = require_own
        self.filesystem, root = locate(home, stores)
        self.root = root.rstrip("/")
        self._path = f"{self.root}/{OURS}/published-{app_id}.json"
        self._records: NumberedRecords | None = None
        if objects_of(self.filesystem) is not None or is_local(self.filesystem):
            records = _records(self.filesystem, self.root, app_id)
            is_series = is_contended or objects_of(self.filesystem) is not None
            self._records = records if is_series or records.newest() is not None else None

    def read(self) -> Published:
        """The current content."""
        return self._numbered()[1]

    def replace(self, published: Published) -> None:
        """Replace the content, durably, where it is one file; for `change`."""
        with refusals_named(self._path):
            self.filesystem.create_dir(f"{self.root}/{OURS}", recursive=True)
            publish_bytes(self.filesystem, self._path, msgspec.json.encode(published), self._require_own)

    def change(self, changed: Callable[[Published], Published]) -> None:
        """Replace the content by what `changed` makes of it; call it with `locked` held.

        In an object store it is called again if another process was faster.
        """
        while True:
            number, known = self._numbered()
            published = changed(known)
            if published == known:
                return None
            if self._records is None:
                return self.replace(published)
            if self._records.append(number + 1, msgspec.json.encode(published)):
                return None

    def note(self, sink_id: str, sink: PublishedSink | None) -> None:
        """Replace or remove the record of one sink; the lock must not be held."""
        self.exchange(sink_id, self.read().sinks.get(sink_id), sink)

    def exchange(self, sink_id: str, before: PublishedSink | None, sink: PublishedSink | None) -> None:
        """Replace or remove the record of one sink, if it is still `before`; the lock must not be held."""

        def exchanged(known: Published) -> Published:
            if known.sinks.get(sink_id) != before:
                return known
            sinks = {id: other for id, other in known.sinks.items() if id != sink_id}
            if sink is not None:
                sinks[sink_id] = sink
            return Published(known.transaction, sinks)

        if before != sink:
            with self.locked():
                self.change(exchanged)

    def _numbered(self) -> tuple[int, Published]:
        """The content, and the number of its record in an object store."""
        newest = None if self._records is None else self._records.newest()
        if newest is None:
            return -1, _read(self.filesystem, self._path)
        return newest[0], _decoded(newest[1], self._path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock on changes; on file systems without locks the caller must be the only writer."""
        if self._records is not None or not is_local(self.filesystem):
            yield
            return
        lock = Path(f"{self._path}.lock")
        with refusals_named(str(lock)):
            lock.parent.mkdir(parents=True, exist_ok=True)
            held = FileLock(lock, mode=0o666)  # applications of several users may publish together
            held.wait()
        try:
            yield
        finally:
            held.release()


def published_files(
    directory: str | os.PathLike[str], stores: StoreSettings | None = None
) -> dict[str, list[str]]:
    """The files that file sinks have published under `directory`, as of one transaction.

    `directory` is the one in which the sinks publish `together`, or one sink's own. The result has an
    entry for every sink that has published there, keyed by its directory, with the paths of its files in the
    order of batches; no sink is ahead of another by a transaction. Raises `InputError` when no sink of
    Drivetrain publishes there.

        files = published_files("out")
        ledger = spark.read.parquet(*files["/data/out/ledger"])
    """
    place = os.fspath(directory)
    filesystem, root = locate(place, stores)
    root = root.rstrip("/")
    selector = pafs.FileSelector(f"{root}/{OURS}", allow_not_found=True)
    ours = {info.base_name: info.path for info in filesystem.get_file_info(selector)}
    manifests = _manifests(filesystem, root, ours)
    if not manifests and "owner.json" in ours:
        manifests = [Published(sinks={"": PublishedSink(".", None)})]
    if not manifests:
        raise InputError(
            "no file sink has published here",
            where=place,
            expected="a sink's directory, or the common directory of sinks that publish together",
            remedy="correct the path; or wait until the application has published its first batch",
        )
    found: dict[str, list[str]] = {}
    for sink in (sink for manifest in manifests for sink in manifest.sinks.values()):
        whole = root if sink.directory == "." else f"{root}/{sink.directory}"
        names = _whole_names(filesystem, whole, one_by_one=sink.last is None)
        found[whole] = [
            f"{whole}/{name}" for name in names if sink.last is None or batch_of(name) <= sink.last
        ]
    return found


def last_published(filesystem: pafs.FileSystem, directory: str, prefix: str = "") -> int:
    """The last batch with a file in a sink's directory; `NONE` if there is none.

    With `prefix`, only files count whose names have it before the number of the batch.
    """
    names = [_base_name(name) for name in _published_names(filesystem, directory)]
    names += divided_names(filesystem, f"{directory}/{OURS}/dividing")
    its_own = re.compile(rf"{re.escape(prefix)}\d{{8,}}(?:-to\d{{8,}})?\..*" if prefix else ".*")
    return max((batch_of(name) for name in names if its_own.fullmatch(name)), default=NONE)


def batch_of(name: str) -> int:
    """The number of the batch in the name of its file, or of the last one if there are several."""
    found = _BATCH.search(name)
    assert found is not None, name
    return int(found[1])


def _published_names(filesystem: pafs.FileSystem, directory: str) -> list[str]:
    return sorted(published_in(filesystem, directory), key=lambda name: (batch_of(name), name))


def _manifests(filesystem: pafs.FileSystem, root: str, ours: Mapping[str, str]) -> list[Published]:
    """The manifests of all applications among the files `ours`, in their newest versions."""
    found = [name for name in map(_MANIFEST.fullmatch, ours) if name is not None]
    numbered = {name[1] for name in found if name[2] is not None}
    flat = [_read(filesystem, ours[name[0]]) for name in found if name[2] is None and name[1] not in numbered]
    newest = [_records(filesystem, root, app_id).newest() for app_id in sorted(numbered)]
    return flat + [_decoded(record[1], f"{root}/{OURS}") for record in newest if record is not None]


def _records(filesystem: pafs.FileSystem, root: str, app_id: str) -> NumberedRecords:
    return NumberedRecords(filesystem, f"{root}/{OURS}", f"published-{app_id}-")


def _whole_names(filesystem: pafs.FileSystem, directory: str, *, one_by_one: bool) -> list[str]:
    """The published files, but none of a batch of which only some partitions may be visible.

    A file that was visible before the list of those being divided was read, and is not in it, was complete.
    """
    gone = frozenset(Showings(filesystem, directory).read_gone()) if _can_have(filesystem) else frozenset()
    before = {_base_name(name) for name in _published_names(filesystem, directory)} - gone
    divided = set(divided_names(filesystem, f"{directory}/{OURS}/dividing"))
    if divided and not one_by_one:
        divided -= _left_behind(filesystem, directory, divided)
    before -= divided
    names = _published_names(filesystem, directory)
    if not any("/" in name for name in names):
        return [name for name in names if name not in gone]
    return [name for name in names if _base_name(name) in before]


def _left_behind(filesystem: pafs.FileSystem, directory: str, divided: Set[str]) -> Set[str]:
    """The files among the divided ones that are complete: a process that woke late has moved them back."""
    if not _can_have(filesystem):
        return frozenset()
    decided = Showings(filesystem, directory).decided_last()
    return frozenset() if decided is None else divided - decided


def _can_have(filesystem: pafs.FileSystem) -> bool:
    """Whether records can decide there what is visible."""
    return objects_of(filesystem) is not None or is_local(filesystem)


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


def _read(filesystem: pafs.FileSystem, path: str) -> Published:
    try:
        # In one request: it is replaced while applications run, and may become longer.
        return _decoded(read_whole_file(filesystem, path), path)
    except FileNotFoundError:
        return Published()


def _decoded(content: bytes, path: str) -> Published:
    try:
        return msgspec.json.decode(content, type=Published)
    except msgspec.DecodeError as error:
        raise InputError(
            "the record of what file sinks have published is damaged",
            where=path,
            got=str(error),
            remedy="restore it from a backup; without one delete it: then every file in the sinks' "
            "directories counts as published",
        ) from error
