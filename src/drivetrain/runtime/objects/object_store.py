"""The interface of an object store: the few operations on which everything else relies.

The problem: object stores differ, and most of what they offer differs from one to the next. Renaming, locking
and conditional replacement are not available everywhere, and test servers claim more than they provide.

The design: one small protocol. The only decision that is left to the store is `put_if_absent`: of all
callers that create one name, one succeeds. S3, Google's and Azure's stores and HDFS have that. Nothing is
decided by replacing an object if its tag has not changed
(docs/decisions/0105-one-decision-is-left-to-an-object-store.md).

Invariants of an implementation:

1. An object is seen whole or not at all.
2. `put_if_absent` returns True in exactly one of all calls for a name, also when an answer was lost on the
   way and the request was sent again.
3. The effect of a call that has returned is seen by every later call.

Called by `object_files`, `stored_savepoint` and `object_store_checks`; implemented by `obstore_store` and
`hdfs_store`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from drivetrain.errors import UserError


@dataclass(frozen=True)
class StoredObject:
    """An object as a listing shows it: `path` is its name in the bucket."""

    path: str
    size_bytes: int
    modified_ms: int


class StoreAccessError(UserError, PermissionError):
    """The store does not accept the credentials, or they do not allow a request."""

    code = "store-access"


class ObjectStore(Protocol):
    """The objects of one bucket, by name.

    Every call raises `UnavailableError` when the store does not answer for a long time, `FileNotFoundError`
    for an object that does not exist, and `PermissionError` (`StoreAccessError`) when the credentials do
    not allow it.
    """

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Create an object; False, and nothing changed, if the name is taken."""
        ...

    def put(self, path: str, content: bytes) -> None:
        """Create or replace an object."""
        ...

    def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes [start, end) of an object; None: to its end."""
        ...

    def find(self, path: str) -> StoredObject | None:
        """The object of this name, without its content; None if there is none."""
        ...

    def pages(self, prefix: str, after: str = "") -> Iterator[list[StoredObject]]:
        """The objects below a folder, in the order of names, those after the name `after`, page by page."""
        ...

    def delete(self, path: str) -> None:
        """Delete an object; it may be gone already."""
        ...
