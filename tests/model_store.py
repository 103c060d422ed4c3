"""An object store in memory, with the guarantees of the protocol. Tests see and disturb each request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from drivetrain.runtime.objects.object_store import StoredObject

PAGE = 3
CHANGES = ("create", "put", "delete")


def _undisturbed(what: str, path: str) -> None:
    """Does nothing."""


@dataclass
class ModelStore:
    """The objects of one bucket; `before` and `after` are called with each request, and may raise."""

    objects: dict[str, bytes] = field(default_factory=dict)
    before: Callable[[str, str], None] = _undisturbed
    after: Callable[[str, str], None] = _undisturbed

    def put_if_absent(self, path: str, content: bytes) -> bool:
        self.before("create", path)
        is_new = path not in self.objects
        self.objects.setdefault(path, bytes(content))
        self.after("create", path)
        return is_new

    def put(self, path: str, content: bytes) -> None:
        self.before("put", path)
        self.objects[path] = bytes(content)
        self.after("put", path)

    def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        self.before("get", path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path][start:end]

    def find(self, path: str) -> StoredObject | None:
        self.before("find", path)
        return self._found(path) if path in self.objects else None

    def pages(self, prefix: str, after: str = "") -> Iterator[list[StoredObject]]:
        self.before("list", prefix)
        folder = f"{prefix}/" if prefix else ""
        names = sorted(name for name in self.objects if name.startswith(folder) and name > after)
        for page in _pages(names):
            yield [self._found(name) for name in page if name in self.objects]

    def delete(self, path: str) -> None:
        self.before("delete", path)
        self.objects.pop(path, None)
        self.after("delete", path)

    def _found(self, path: str) -> StoredObject:
        return StoredObject(path, len(self.objects[path]), time.time_ns() // 1_000_000)


def _pages(names: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(names), PAGE):
        yield names[at : at + PAGE]
