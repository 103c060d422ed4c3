"""A mapping from bytes to bytes, stored as bytes; only the parts that are touched are decoded.

Problem: Spark provides the state of a bucket of keys as one blob and takes it back as one. Decoding and
encoding all of it costs in proportion to the number of keys, however few of them a batch touches.

Design: **pages** of about a dozen entries, addressed by a stable hash of the key, and a table of where they
begin. A read or a change decodes the page of that key; `saved` encodes the changed pages and copies the bytes
between them. The number of pages doubles as the mapping grows, which decodes all of it, once for each
doubling. Copying a megabyte takes a fraction of a millisecond, decoding it a hundred.

    count u32 | log2(pages) u8 | end of each page u32 … | pages, each a msgpack map of bytes to bytes

The lowest bits of the hash are not used: they choose the key's bucket (see `bucket_of`).

Invariants:

1. It is equal to a dict after the same changes.
2. The same entries in the same order of changes give the same bytes.
3. Truncated or inconsistent bytes raise InputError, nothing else; contents are the caller's responsibility.

Called by `core.state.state_layer`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from drivetrain.errors import InputError

BUCKETS: Final = 32
"""The number of buckets of a processor's keys. It never changes, whatever the cores or the parallelism."""

_BUCKET_BITS: Final = 5
_FULL: Final = 16
_HEAD: Final = struct.Struct("<IB")
_MOST_PAGES_LOG2: Final = 27
_EMPTY_PAGE: Final = b"\x80"

_decoder: Final = msgspec.msgpack.Decoder(dict[bytes, bytes])
_encoder: Final = msgspec.msgpack.Encoder()


def bucket_of(key: bytes) -> int:
    """The bucket of an encoded key, the same in every process and version."""
    return zlib.crc32(key) % BUCKETS


class PagedState:
    """The mapping; `saved` gives the bytes from which the next one is created.

    >>> state = PagedState()
    >>> state[b"a"] = b"1"
    >>> PagedState(state.saved()).get(b"a")
    b'1'
    """

    def __init__(self, saved: bytes | memoryview | None = None) -> None:
        self._pages: list[dict[bytes, bytes] | None] = [{}]
        self._at: list[int] = [0, len(_EMPTY_PAGE)]
        self._bytes = memoryview(_EMPTY_PAGE)
        self._count = 0
        self._changed: set[int] = set()
        if saved is not None:
            self._take(memoryview(saved))

    def __len__(self) -> int:
        return self._count

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        return self._page(self._number(key)).get(key)

    def __contains__(self, key: bytes) -> bool:
        return key in self._page(self._number(key))

    def __setitem__(self, key: bytes, value: bytes) -> None:
        number = self._number(key)
        page = self._page(number)
        if key not in page:
            self._count += 1
        page[key] = value
        self._changed.add(number)
        if self._count > _FULL * len(self._pages):
            self._double()

    def discard(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        number = self._number(key)
        if self._page(number).pop(key, None) is not None:
            self._count -= 1
            self._changed.add(number)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries, page by page; it must not be changed meanwhile."""
        for number in range(len(self._pages)):
            yield from self._page(number).items()

    def keys(self) -> Iterator[bytes]:
        """All keys, page by page; it must not be changed meanwhile."""
        for number in range(len(self._pages)):
            yield from self._page(number)

    def saved(self) -> bytes:
        """All of it as bytes."""
        changed = sorted(self._changed)
        parts: list[bytes | memoryview] = []
        sizes = [end - start for start, end in pairwise(self._at)]
        copied = 0
        for number in changed:
            page = self._pages[number]
            assert page is not None  # only decoded pages are changed
            parts.append(self._bytes[self._at[copied] : self._at[number]])
            encoded = _encoder.encode(page)
            parts.append(encoded)
            sizes[number] = len(encoded)
            copied = number + 1
        parts.append(self._bytes[self._at[copied] : self._at[-1]])
        head = _HEAD.pack(self._count, len(sizes).bit_length() - 1)
        return b"".join([head, struct.pack(f"<{len(sizes)}I", *accumulate(sizes)), *parts])

    def _take(self, saved: memoryview) -> None:
        if len(saved) < _HEAD.size:
            raise _damaged(f"{len(saved)} bytes")
        self._count, log2 = _HEAD.unpack_from(saved)
        pages = 1 << min(log2, _MOST_PAGES_LOG2)
        begin = _HEAD.size + 4 * pages
        if log2 > _MOST_PAGES_LOG2 or len(saved) < begin:
            raise _damaged(f"a table of 2^{log2} pages in {len(saved)} bytes")
        self._at = [0, *struct.unpack_from(f"<{pages}I", saved, _HEAD.size)]
        if any(end <= start for start, end in pairwise(self._at)) or self._at[-1] != len(saved) - begin:
            raise _damaged(f"pages up to byte {self._at[-1]} of {len(saved) - begin}")
        self._bytes = saved[begin:]
        self._pages = [None] * pages

    def _number(self, key: bytes) -> int:
        return (zlib.crc32(key) >> _BUCKET_BITS) & (len(self._pages) - 1)

    def _page(self, number: int) -> dict[bytes, bytes]:
        page = self._pages[number]
        if page is None:
            try:
                page = _decoder.decode(self._bytes[self._at[number] : self._at[number + 1]])
            except msgspec.MsgspecError as error:
                raise _damaged(f"page {number}: {error}") from error
            self._pages[number] = page
        return page

    def _double(self) -> None:
        entries = list(self.items())
        self._pages = [{} for _ in range(2 * len(self._pages))]
        for key, value in entries:
            page = self._pages[self._number(key)]
            assert page is not None
            page[key] = value
        self._bytes = memoryview(_EMPTY_PAGE * len(self._pages))
        self._at = list(range(len(self._pages) + 1))
        self._changed = {number for number, page in enumerate(self._pages) if page}


def _damaged(got: str) -> InputError:
    return InputError(
        "the state of a bucket of keys is damaged",
        expected="a table of pages, and these pages",
        got=got,
        remedy="go back to a checkpoint or a savepoint, or start over with --fresh",
    )
