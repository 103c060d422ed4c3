"""A file system of Hadoop (HDFS) as an object store, reached by the package `hdfs-native`, without Java.

The problem: in HDFS a file is visible while it is written, and its client neither limits the time of a
request nor knows what became of one whose answer is lost.

The design: a file is written under a hidden name of its own, synced, and renamed. Renaming without
replacement is one step of the name node: of all that give one name to a file, one succeeds. A renaming whose
answer is lost is requested again; the hidden file is gone if the first one was carried out, and since nobody
else knows its name, that tells. Each request runs in a thread, which is left alone if it takes too long; what
it may still do later is harmless, because a hidden file can be renamed once.

What if we die here: a hidden file stays. A listing deletes those of the day before; a process that slept so
long does not conclude anything from a hidden file that is gone.

Invariants: those of `ObjectStore`. A directory is created with its first file, and stays.

Called by `locations`, which opens a store for each name node. Source: HDFS's name node
(FSDirRenameOp) and `hdfs-native`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from drivetrain.errors import MissingDependencyError, UnavailableError
from drivetrain.runtime.objects.hdfs_errors import final_error, unavailable
from drivetrain.runtime.objects.object_store import StoredObject
from drivetrain.runtime.objects.repeated_requests import answered
from drivetrain.runtime.objects.settings import StoreSettings

if TYPE_CHECKING:
    from hdfs_native import Client, FileStatus

T = TypeVar("T")

PAGE: Final = 1000
_WRITING: Final = re.compile(r"\.[0-9a-f]{32}\.writing")
_LEFT_AFTER_MS: Final = 24 * 3_600_000
_KNOWN_FOR_S: Final = 3_600.0
"""How long a process may conclude from a missing hidden file that it was renamed."""
_BYTES_PER_S: Final = 4 * 2**20
_CONNECT_S: Final = 5.0


class HdfsStore:
    """The files of the name node (or name service) `authority`; see the module docstring."""

    def __init__(self, authority: str, settings: StoreSettings) -> None:
        self._where: Final = f"hdfs://{authority}"
        self._config_dir: Final = settings.hdfs_config_dir
        self._timeout_s: Final = settings.hdfs_timeout_ms / 1000
        self._retry_s: Final = settings.hdfs_retry_ms / 1000
        self._client: Client | None = None
        self._connected_by = os.getpid()
        self._inherited: list[Client | None] = []
        """Those of the process that this one is a fork of, which has their threads."""

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Create a file; False if the name is taken."""
        aside, since_s = self._write_aside(path, content), time.time()
        return self._rename(aside, path, since_s)

    def put(self, path: str, content: bytes) -> None:
        """Create or replace a file."""
        aside, since_s = self._write_aside(path, content), time.time()
        self._rename(aside, path, since_s, replaces=True)

    def move_if_absent(self, source: str, target: str) -> None:
        """Rename a file, unless there is one of that name: then delete `source`."""
        folder = target.rpartition("/")[0]
        self._asked("MKDIRS", folder, lambda client: client.mkdirs(f"/{folder}", create_parent=True))
        self._rename(source, target, time.time())

    def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes [start, end) of a file; None: to its end."""

        def read(client: Client) -> bytes:
            reader = client.read(f"/{path}")
            stop = len(reader) if end is None else min(end, len(reader))
            return bytes(reader.read_range(start, stop - start)) if stop > start else b""

        found = None if end is not None else self.find(path)
        size_bytes = (end or 0) - start if found is None else found.size_bytes - start
        return self._asked("READ", path, read, size_bytes)

    def find(self, path: str) -> StoredObject | None:
        """The file of this name; None if there is none."""
        try:
            status = self._asked("STAT", path, lambda client: client.get_file_info(f"/{path}"))
        except FileNotFoundError:
            return None
        return None if status.isdir else _found(path, status)

    def pages(self, prefix: str, after: str = "") -> Iterator[list[StoredObject]]:
        """The files below a folder, by pages."""
        page: list[StoredObject] = []
        for found in self._walk(prefix, after):
            page.append(found)
            if len(page) == PAGE:
                yield page
                page = []
        if page:
            yield page

    def delete(self, path: str) -> None:
        """Delete a file; it may be gone already."""
        self._asked("DELETE", path, lambda client: client.delete(f"/{path}"))

    def delete_folder(self, path: str) -> None:
        """Delete a folder with everything below it; it may be gone already."""
        self._asked("DELETE", path, lambda client: client.delete(f"/{path}", recursive=True))

    # -- writing -----------------------------------------------------------------------------------------

    def _write_aside(self, path: str, content: bytes) -> str:
        """Write a hidden file beside `path`, durably; returns its name."""
        folder = path.rpartition("/")[0]

        def write(client: Client) -> str:
            # An earlier try that gave no answer may still be writing, so each has a name of its own.
            aside = f"{folder}/.{uuid.uuid4().hex}.writing".lstrip("/")
            with client.create(f"/{aside}", _creating()) as out:
                out.write(content)
                with contextlib.suppress(NotImplementedError):  # erasure-coded files
                    out.hsync()
            return aside

        return self._asked("WRITE", path, write, len(content))

    def _rename(self, aside: str, path: str, since_s: float, *, replaces: bool = False) -> bool:
        """Give the file `aside` its name, or delete it; whether it has the name."""

        def rename(client: Client) -> bool | None:
            try:
                client.rename(f"/{aside}", f"/{path}", replaces)
            except FileNotFoundError:
                return None
            except FileExistsError:
                return False
            return True

        renamed = self._asked("RENAME", path, rename)
        if renamed is None or (not renamed and self.find(aside) is None):
            if time.time() - since_s > _KNOWN_FOR_S or self.find(path) is None:
                raise UnavailableError(
                    "a file that was being written is gone",
                    where=f"{self._where}/{path}",
                    got=f"no {aside}",
                    remedy="run the same command again: it continues",
                )
            return True  # by an earlier request, whose answer was lost
        if not renamed:
            self.delete(aside)
        return renamed

    # -- looking -----------------------------------------------------------------------------------------

    def _walk(self, folder: str, after: str) -> Iterator[StoredObject]:
        """The files below a folder in the order of their names; what dead writers have left is deleted."""
        for name, status in self._entries(folder):
            if status.isdir:
                if not after or after.startswith(f"{name}/") or f"{name}/" > after:
                    yield from self._walk(name, after)
            elif _WRITING.fullmatch(name.rpartition("/")[2]):
                if status.modification_time < time.time() * 1000 - _LEFT_AFTER_MS:
                    self.delete(name)
            elif name > after:
                yield _found(name, status)

    def _entries(self, folder: str) -> list[tuple[str, FileStatus]]:
        """What is in a folder, by name, ordered as the names of the files below it."""
        inside = f"{folder}/" if folder else ""
        try:
            found = self._asked("LIST", folder, lambda client: list(client.list_status(f"/{folder}")))
        except FileNotFoundError:
            return []
        named = [(urlsplit(one.path).path.lstrip("/"), one) for one in found]
        below = [(name, one) for name, one in named if name.startswith(inside)]
        return sorted(below, key=lambda entry: f"{entry[0]}/" if entry[1].isdir else entry[0])

    # -- requests ----------------------------------------------------------------------------------------

    def _asked(self, what: str, path: str, request: Callable[[Client], T], size_bytes: int = 0) -> T:
        """The answer to a request, requested again while there is none."""
        where = f"{self._where}/{path}"
        timeout_s = self._timeout_s + max(0, size_bytes) / _BYTES_PER_S

        def final(error: Exception) -> Exception | None:
            if isinstance(error, FileNotFoundError):
                return FileNotFoundError(f"there is no file {where}")
            self._client = None
            return final_error(error, what, where)

        return answered(
            lambda: self._answer(request, timeout_s),
            self._retry_s,
            (OSError, RuntimeError),
            final,
            lambda error: unavailable(error, what, where),
        )

    def _answer(self, request: Callable[[Client], T], timeout_s: float) -> T:
        answered: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
        client = self._connected()

        def ask() -> None:
            try:
                answered.put((request(client), None))
            except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
                answered.put((None, error))

        threading.Thread(target=ask, name="hdfs-request", daemon=True).start()
        try:
            answer, error = answered.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"no answer within {timeout_s:.0f} s") from None
        if error is not None:
            raise error
        return answer  # type: ignore[return-value] # there was no error

    def _connected(self) -> Client:
        if self._connected_by != os.getpid():
            self._inherited.append(self._client)
            self._connected_by, self._client = os.getpid(), None
        client = self._client
        if client is None:
            library = _library(self._where)
            self._require_listening()
            client = self._client = library.Client(self._where, config_dir=self._config_dir)
        return client

    def _require_listening(self) -> None:
        """Raise `OSError` if nothing listens: the library would try for three minutes to connect."""
        place = urlsplit(self._where)
        if place.hostname is not None and place.port is not None:
            limit_s = min(_CONNECT_S, self._timeout_s)
            socket.create_connection((place.hostname, place.port), limit_s).close()


def _library(where: str) -> Any:
    try:
        import hdfs_native
    except ImportError as error:
        raise MissingDependencyError(
            "HDFS needs a package that is not installed",
            where=where,
            expected="hdfs-native",
            remedy="pip install 'drivetrain[hdfs]'; in a cluster on every worker",
        ) from error
    return hdfs_native


def _creating() -> Any:
    from hdfs_native import WriteOptions

    return WriteOptions(overwrite=False, create_parent=True)


def _found(path: str, status: FileStatus) -> StoredObject:
    return StoredObject(path, status.length, status.modification_time)
