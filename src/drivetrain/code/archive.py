"""Packs an application's code as one archive where it is submitted, and unpacks it where it runs.

Problem: the modules imported next to an application's file must reach machines that have never seen them,
byte for byte; other things in that folder (data, state, environments, the rest of a home directory) must
not. And an archive comes from the network: unpacking must not write outside its directory.

Design: a zip, named by the SHA-256 of its bytes. Members are sorted and carry neither times nor owners, so
that the same files make the same archive. It contains:

- without `directory`: the file, the Python files in its folder, and the packages there (folders with an
  `__init__.py`) with all their files;
- with `directory`: everything in it, including the file;
- the content of each extra archive (.zip, .whl, .tar, .tar.gz, ...) and each extra file, at the top level;

but never, from a folder: names that begin with a dot (.git, .venv, .drivetrain, ...), `SKIPPED_NAMES`,
`*.pyc`, Python environments (`pyvenv.cfg`), state directories (`application.json` next to `fragments`) and
the output of sinks (`_drivetrain`, `_spark_metadata`, `_SUCCESS`).

Invariants:
1. The same files make the same archive, on every machine with the same zlib.
2. Nothing outside of the given paths is packed: a symbolic link that leads out is refused.
3. Unpacking verifies the hash first, writes only below its target, and creates only files and folders.
4. A target directory of `unpack` is complete, or does not exist.

Called by clients (`pack`), by the worker's `CodeCache` (`unpack`) and by the console (`unpack_upload`).
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from drivetrain.errors import PeerViolationError, UserError

LARGEST_BYTES: Final = 128 * 2**20
"""The limit for the total size of an application's files, unpacked."""
MOST_FILES: Final = 20_000

SKIPPED_NAMES: Final = frozenset({"__pycache__", "venv", "node_modules", "__pypackages__"})
_OUTPUT_MARKS: Final = ("_drivetrain", "_spark_metadata", "_SUCCESS")
_ARCHIVES: Final = (".zip", ".whl", ".egg", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_SHOWN: Final = 3


class ArchiveError(UserError):
    """An application's files cannot be packed: too many, too large, or they lead out of their folder."""

    code = "archive"


class BadArchiveError(PeerViolationError):
    """A received archive does not match its hash, or `pack` did not make it."""

    code = "bad-archive"


@dataclass(frozen=True, slots=True)
class Archive:
    """A packed application: `file` is the application's file in it, `data` the bytes of the zip."""

    sha256: str
    file: str
    data: bytes = field(repr=False)

    @property
    def size_bytes(self) -> int:
        """The size of the zip."""
        return len(self.data)


def pack(
    file: Path,
    archives: Sequence[Path] = (),
    *,
    directory: Path | None = None,
    largest_bytes: int = LARGEST_BYTES,
) -> Archive:
    """Pack the application of `file` with what it needs; the module's docstring lists the contents.

    `largest_bytes` limits the files before compression. Raises ArchiveError.
    """
    members = _Members(largest_bytes)
    if not file.is_file():
        raise ArchiveError("there is no such file", where=str(file), remedy="check the path")
    root = file.parent if directory is None else directory
    name = _within(file, root)
    members.add(name, _read(file), str(file))
    found = _beside(file) if directory is None else _below(directory, directory)
    for path in found:
        if (member := path.relative_to(root).as_posix()) != name:
            members.add(member, _read(path), str(path))
    for extra in archives:
        _add_extra(members, extra)
    data = _zip(members.content)
    return Archive(hashlib.sha256(data).hexdigest(), name, data)


def unpack(data: bytes, sha256: str, target: Path, *, largest_bytes: int = LARGEST_BYTES) -> None:
    """Verify the hash of an archive and unpack it into the new directory `target`.

    Raises BadArchiveError or OSError, leaving nothing at `target`.
    """
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadArchiveError("the code that arrived is not the code that was sent", where=sha256)
    aside = target.with_name(f"{target.name}.unpacking")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _extract(archive, aside, largest_bytes)
        aside.rename(target)
    except zipfile.BadZipFile as error:
        raise BadArchiveError("the archive cannot be read", where=sha256, got=str(error)) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def unpack_upload(file: Path, target: Path, *, largest_bytes: int = LARGEST_BYTES) -> None:
    """Unpack a zip that a user made of a directory into the new directory `target`.

    Raises ArchiveError for what is no zip, holds links, leads out of the directory or is too large.
    """
    target.mkdir(parents=True)
    try:
        with zipfile.ZipFile(file) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            if len(infos) > MOST_FILES:
                raise ArchiveError("the zip holds too many files", got=str(len(infos)))
            left = largest_bytes
            for info in infos:
                _require_plain(info.filename, "the zip")
                if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
                    raise ArchiveError(
                        "the zip holds something other than files and folders",
                        where=repr(info.filename),
                        remedy="pack copies in place of links",
                    )
                left -= _write_member(archive, info, target, left)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError) as error:
        # The last two: it is encrypted, or compressed in a way that Python does not know.
        raise ArchiveError("the zip cannot be unpacked", got=str(error), remedy="create it again") from error
    except BadArchiveError as error:
        raise ArchiveError(error.what, expected=f"at most {largest_bytes} bytes") from error


class _Members:
    """The files to pack, by name in the archive, with the path of each."""

    def __init__(self, largest_bytes: int) -> None:
        self.content: Final[dict[str, bytes]] = {}
        self._places: Final[dict[str, str]] = {}
        self._largest_bytes: Final = largest_bytes
        self._bytes = 0

    def add(self, name: str, data: bytes, place: str) -> None:
        if name in self.content:
            if self.content[name] == data:
                return
            raise ArchiveError(
                "two files of the application would have the same place",
                where=name,
                got=f"{self._places[name]} and {place}",
                remedy="rename one of them",
            )
        self.content[name], self._places[name] = data, place
        self._bytes += len(data)
        if self._bytes > self._largest_bytes or len(self.content) > MOST_FILES:
            raise self._too_large()

    def _too_large(self) -> ArchiveError:
        largest = sorted(self.content, key=lambda name: -len(self.content[name]))[:_SHOWN]
        sizes = ", ".join(
            f"{self._places[name]} ({len(self.content[name]) // 2**10} KiB)" for name in largest
        )
        return ArchiveError(
            "the application's files are too large to send",
            expected=f"at most {self._largest_bytes // 2**20} MiB in {MOST_FILES} files",
            got=f"more; so far {len(self.content)} files, the largest are {sizes}",
            remedy="move data out of the application's folder, to storage that all machines share",
        )


def unpack_upload_or_file(upload: Path, code: Path, file: str) -> bool:
    """Unpack an upload to the directory `code`, if it is a zip; else move it there as `file`. Says which.

    `file` may be FILE.py:NAME. Raises like `unpack_upload`.
    """
    with open(upload, "rb") as begun:
        is_archive = begun.read(2) == b"PK"
    if is_archive:
        unpack_upload(upload, code)
    else:
        path = code / file.partition(":")[0]
        path.parent.mkdir(parents=True)
        upload.rename(path)
    return is_archive


def _beside(file: Path) -> Iterator[Path]:
    folder = file.parent
    for path in sorted(folder.iterdir()):
        if is_skipped(path):
            continue
        if path.is_dir() and (path / "__init__.py").is_file():
            yield from _below(path, folder)
        elif path.suffix == ".py" and path.is_file():
            _require_inside(path, folder)
            yield path


def _below(folder: Path, root: Path) -> Iterator[Path]:
    _require_inside(folder, root)
    for path in sorted(folder.iterdir()):
        if is_skipped(path):
            continue
        if path.is_dir():
            if path.is_symlink():
                raise _leads_out(path, "a link to a folder")
            yield from _below(path, root)
        elif path.is_file():
            _require_inside(path, root)
            yield path


def is_skipped(path: Path) -> bool:
    """Whether a file or folder below an application's folder is no part of the application."""
    if path.name.startswith(".") or path.name in SKIPPED_NAMES or path.suffix == ".pyc":
        return True
    if not path.is_dir():
        return False
    is_state = (path / "application.json").is_file() and any(
        (path / of_a_life).is_dir() for of_a_life in ("fragments", "lives")
    )
    is_environment = (path / "pyvenv.cfg").is_file()
    return is_state or is_environment or any((path / mark).exists() for mark in _OUTPUT_MARKS)


def _require_inside(path: Path, root: Path) -> None:
    if not path.resolve().is_relative_to(root.resolve()):
        raise _leads_out(path, f"a link to {path.resolve()}")


def _leads_out(path: Path, got: str) -> ArchiveError:
    return ArchiveError(
        "a symbolic link leads out of the application's folder",
        where=str(path),
        got=got,
        remedy="put a copy there, or keep the link elsewhere",
    )


def _within(file: Path, root: Path) -> str:
    try:
        return file.resolve().relative_to(root.resolve()).as_posix()
    except ValueError as error:
        raise ArchiveError(
            "the application's file is not in the given directory", where=str(file), got=str(root)
        ) from error


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ArchiveError(
                "a file is too large to send",
                where=str(path),
                expected=f"at most {LARGEST_BYTES // 2**20} MiB",
                got=f"{path.stat().st_size // 2**20} MiB",
                remedy="move data out of the application's folder",
            )
        return path.read_bytes()
    except OSError as error:
        raise ArchiveError("a file cannot be read", where=str(path), got=error.strerror) from error


def _add_extra(members: _Members, extra: Path) -> None:
    if not extra.is_file():
        raise ArchiveError(
            "there is no such archive",
            where=str(extra),
            expected=f"a file ({', '.join(_ARCHIVES)}), or a Python file",
            remedy="check the path",
        )
    if not extra.name.endswith(_ARCHIVES):
        members.add(extra.name, _read(extra), str(extra))
        return
    try:
        entries = _tar_entries(extra) if ".t" in extra.name[-8:] else _zip_entries(extra)
        for name, data in entries:
            _require_plain(name, str(extra))
            members.add(name, data, f"{extra}:{name}")
    except (zipfile.BadZipFile, tarfile.TarError, OSError, EOFError) as error:
        raise ArchiveError("the archive cannot be read", where=str(extra), got=str(error)) from error


def _zip_entries(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.file_size > LARGEST_BYTES:
                raise ArchiveError("a file in the archive is too large", where=f"{path}:{info.filename}")
            if not info.is_dir():
                yield info.filename, archive.read(info)


def _tar_entries(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for info in archive:
            if info.size > LARGEST_BYTES:
                raise ArchiveError("a file in the archive is too large", where=f"{path}:{info.name}")
            if info.isfile():
                content = archive.extractfile(info)
                assert content is not None
                yield str(PurePosixPath(info.name)), content.read()
            elif not info.isdir():
                raise ArchiveError(
                    "the archive holds something other than files and folders",
                    where=f"{path}:{info.name}",
                    remedy="pack copies in place of links",
                )


def _require_plain(name: str, where: str) -> None:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or ":" in parts[0]:
        raise ArchiveError("a name in the archive leads out of it", where=where, got=repr(name))


def _zip(content: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(content):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            info.create_system = 3
            archive.writestr(info, content[name])
    return buffer.getvalue()


def _extract(archive: zipfile.ZipFile, target: Path, largest_bytes: int) -> None:
    infos = archive.infolist()
    if len(infos) > MOST_FILES:
        raise BadArchiveError("the archive holds too many files", got=str(len(infos)))
    written = 0
    for info in infos:
        try:
            _require_plain(info.filename, "the archive")
        except ArchiveError as error:
            raise BadArchiveError(error.what, got=error.got) from error
        if info.is_dir() or not stat.S_ISREG(info.external_attr >> 16):
            raise BadArchiveError("the archive holds something other than files", got=repr(info.filename))
        written += _write_member(archive, info, target, largest_bytes - written)


def _write_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, most_bytes: int) -> int:
    """Unpack one file; returns its size. Raises BadArchiveError when it is larger than `most_bytes`."""
    path = target.joinpath(*PurePosixPath(info.filename).parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with archive.open(info) as source, path.open("xb") as file:
        # The archive's own size fields cannot be trusted.
        while block := source.read(2**20):
            written += len(block)
            if written > most_bytes:
                raise BadArchiveError("the archive is larger than allowed when unpacked")
            file.write(block)
    os.chmod(path, 0o444)
    return written
