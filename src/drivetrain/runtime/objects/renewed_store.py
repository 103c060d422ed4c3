"""A bucket that is opened again when its credentials have been renewed.

Called by `locations`. A process may keep a store for months, and credentials of a file hold for hours only.

Invariants: those of `ObjectStore`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from drivetrain.runtime.objects.object_store import ObjectStore, StoredObject


class RenewedStore:
    """The store that `current` returns: asked for with each request."""

    def __init__(self, current: Callable[[], ObjectStore]) -> None:
        self._current: Final = current
        current()  # what is wrong with the place is an error now

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Create an object; False if the name is taken by another object."""
        return self._current().put_if_absent(path, content)

    def put(self, path: str, content: bytes) -> None:
        """Create or replace an object."""
        self._current().put(path, content)

    def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes [start, end) of an object; None: to its end."""
        return self._current().get(path, start, end)

    def find(self, path: str) -> StoredObject | None:
        """The object of this name; None if there is none."""
        return self._current().find(path)

    def pages(self, prefix: str, after: str = "") -> Iterator[list[StoredObject]]:
        """The objects below a folder, by pages."""
        return self._current().pages(prefix, after)

    def delete(self, path: str) -> None:
        """Delete an object; it may be gone already."""
        self._current().delete(path)
