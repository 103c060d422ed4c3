"""The checksums that Hadoop's local file system stores with each file that Spark writes.

Problem: Spark reads a file of its state when a query starts, not while it runs. A file that is damaged after
that would be copied from snapshot to snapshot, until the last undamaged copy is deleted.

Format (Hadoop, `ChecksumFileSystem`): next to `NAME` is `.NAME.crc`: the bytes `crc` and 0, the number of
bytes per checksum (32 bits, big endian), then a CRC-32 (32 bits, big endian) of each such piece. Other file
systems verify files themselves and have no such file.

Called by `snapshots`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MAGIC: Final = b"crc\0"
_HEADER: Final = struct.Struct(">4si")
_CHECKSUM: Final = struct.Struct(">I")
_MOST_PIECE: Final = 1 << 20


def checksums_of(file: Path) -> tuple[int, bytes] | None:
    """How many bytes a checksum covers, and the checksums; None if `file` has no readable ones."""
    try:
        content = file.with_name(f".{file.name}.crc").read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < _HEADER.size or len(content) % _CHECKSUM.size:
        return None
    magic, piece = _HEADER.unpack_from(content)
    if magic != _MAGIC or not 0 < piece <= _MOST_PIECE:
        return None
    return piece, content[_HEADER.size :]


class ChecksumVerifier:
    """Compares a file, given block by block in its order, with its checksums.

    >>> checking = Checking((4, zlib.crc32(b"abcd").to_bytes(4, "big") + zlib.crc32(b"e").to_bytes(4, "big")))
    >>> checking.add(b"abc"); checking.add(b"de"); checking.is_whole()
    True
    """

    def __init__(self, known: tuple[int, bytes]) -> None:
        self._piece, self._wanted = known
        self._rest = b""
        self._found = bytearray()

    def add(self, block: bytes) -> None:
        """Add the next bytes of the file."""
        content = self._rest + block
        whole = len(content) - len(content) % self._piece
        for piece in self._pieces(content[:whole]):
            self._found += _CHECKSUM.pack(zlib.crc32(piece))
        self._rest = content[whole:]

    def is_whole(self) -> bool:
        """Whether the added bytes match the checksums completely."""
        last = _CHECKSUM.pack(zlib.crc32(self._rest)) if self._rest else b""
        return bytes(self._found) + last == self._wanted

    def _pieces(self, content: bytes) -> Iterator[bytes]:
        return (content[at : at + self._piece] for at in range(0, len(content), self._piece))
