"""A bucket of an object store (S3, Google's or Azure's), reached by the package `obstore`.

The problem: a request whose answer is lost may have been carried out. Sent again, a conditional request is
then refused because of itself, and its sender would take its own object for another's.

The design: an object that is created if absent carries a nonce in its metadata. A refused writer reads the
nonce: its own means that it has succeeded. Requests without an answer, and those that the store answers with
an error of its own (5xx, 429), are tried again for a while, which is right for all of them: reading and
deleting change nothing the second time, and replacing writes the same.

Invariants: those of `ObjectStore`.

Called by `locations`, which opens a store for each bucket. Source: the documentation of `obstore`, and of
Amazon S3, Google Cloud Storage and Azure on conditional writes.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.objects.object_store import StoreAccessError, StoredObject
from drivetrain.runtime.objects.repeated_requests import answered
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.objects.store_services import S3, StoreService, first_line

T = TypeVar("T")

PAGE: Final = 1000
_NONCE: Final = "drivetrainnonce"
"""One word: in Azure's stores the names of metadata are identifiers."""
_NO_TOKEN: Final = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
"""The codes that stores return, with status 400, for credentials that are no longer valid."""
_STATUS: Final = re.compile(r"status code: (\d{3})")
_ANSWER: Final = re.compile(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)
_RETRIED: Final = frozenset({408, 409, 425, 429})


class NoBucketError(UserError):
    """The bucket that a place names does not exist."""

    code = "no-bucket"


class ObstoreStore:
    """The bucket `bucket`; see the module docstring.

    `secrets` are the credentials of `settings`, if they are resolved already.
    """

    def __init__(
        self,
        bucket: str,
        settings: StoreSettings,
        secrets: Mapping[str, str] | None = None,
        service: StoreService = S3,
    ) -> None:
        self._service: Final = service
        self._where: Final = f"{service.section}://{bucket}"
        self._retry_s: Final = service.limits(settings)[1] / 1000
        found = settings.secrets(service.section) if secrets is None else secrets
        self._client: Final = service.client(bucket, settings, found)

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Create an object; False if the name is taken by another object."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        nonce = uuid.uuid4().hex

        def create() -> bool:
            try:
                obstore.put(self._client, path, content, mode="create", attributes={_NONCE: nonce})
            except AlreadyExistsError:
                return self._nonce(path) == nonce
            return True

        return self._asked("PUT", path, create)

    def put(self, path: str, content: bytes) -> None:
        """Create or replace an object."""
        import obstore

        self._asked("PUT", path, lambda: obstore.put(self._client, path, content, use_multipart=False))

    def get(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes [start, end) of an object; None: to its end."""
        import obstore

        def read() -> bytes:
            if end is not None:
                return bytes(obstore.get_range(self._client, path, start=start, end=end))
            options: Any = {"range": {"offset": start}} if start else None
            return bytes(obstore.get(self._client, path, options=options).bytes())

        return b"" if end is not None and end <= start else self._asked("GET", path, read)

    def find(self, path: str) -> StoredObject | None:
        """The object of this name; None if there is none."""
        import obstore

        try:
            return _found(self._asked("HEAD", path, lambda: obstore.head(self._client, path)))
        except FileNotFoundError:
            return None

    def pages(self, prefix: str, after: str = "") -> Iterator[list[StoredObject]]:
        """The objects below a folder, by pages."""
        listing = _Listing(self._client, prefix, after)
        while not listing.is_over:
            if page := self._asked("LIST", prefix, listing.next):
                yield page

    def delete(self, path: str) -> None:
        """Delete an object; it may be gone already."""
        import obstore

        try:
            self._asked("DELETE", path, lambda: obstore.delete(self._client, path))
        except FileNotFoundError:
            return

    def _nonce(self, path: str) -> str | None:
        import obstore

        found = obstore.get(self._client, path).attributes.get(_NONCE)
        return None if found is None else str(found)

    def _asked(self, method: str, path: str, request: Callable[[], T]) -> T:
        """The answer to a request, requested again while the store gives none."""
        from obstore.exceptions import BaseError

        where = f"{self._where}/{path}"
        return answered(
            request,
            self._retry_s,
            (FileNotFoundError, BaseError),
            lambda error: _final(error, method, where, self._service),
            lambda error: _unavailable(method, where, error, self._service),
        )


class _Listing:
    """The objects below a folder, page after page.

    The store continues a listing: not every one begins in the middle when it is asked to (Azure's emulator
    does not). After an error it begins again, and what was listed is left out.
    """

    def __init__(self, client: Any, prefix: str, after: str) -> None:
        self.is_over = False
        self._client = client
        self._prefix = prefix
        self._last = after
        self._pages: Iterator[Any] | None = None

    def next(self) -> list[StoredObject]:
        """The next page, which may be empty."""
        import obstore

        pages, self._pages = self._pages, None
        if pages is None:
            offset = self._last or None
            pages = iter(obstore.list(self._client, self._prefix or None, offset=offset, chunk_size=PAGE))
        found = [_found(one) for one in next(pages, [])]
        self._pages, self.is_over = pages, len(found) < PAGE
        page = [one for one in found if one.path > self._last]
        if page:
            self._last = page[-1].path
        return page


def _found(meta: Any) -> StoredObject:
    return StoredObject(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))


def _final(error: Exception, method: str, where: str, service: StoreService) -> Exception | None:
    """The error to raise; None if the request is to be tried again."""
    text = str(error)
    found = _STATUS.search(text)
    status = int(found[1]) if found is not None else 0
    if service.no_bucket in text:
        return NoBucketError(
            "there is no such bucket",
            where=where,
            remedy=f"create it, or correct its name, or {service.place_keys}",
        )
    if status in (401, 403) or any(sign in text for sign in _NO_TOKEN):
        return StoreAccessError(
            "the request to the object store is not allowed",
            where=where,
            got=f"{method}: {_shown(error)}",
            remedy=f"renew the credentials ({service.credentials}), or allow them this request; then run the "
            "same command again",
        )
    if isinstance(error, FileNotFoundError):
        # A name that was taken a moment ago may be free again.
        return None if method == "PUT" else FileNotFoundError(f"there is no object {where}")
    if 400 <= status < 500 and status not in _RETRIED:
        return UserError(
            "the object store refuses a request",
            where=where,
            got=f"{method}: {_shown(error)}",
            remedy=f"check the name of the bucket, {service.place_keys}",
        )
    return None


def _unavailable(method: str, where: str, error: Exception, service: StoreService) -> UnavailableError:
    return UnavailableError(
        "the object store does not answer",
        where=where,
        got=f"{method}: {_shown(error)}",
        remedy=f"check {service.section}.endpoint and the network (`drivetrain doctor` with the place), then "
        f"run the same command again: it continues; {service.section}.retry-for is how long to try",
    )


def _shown(error: Exception) -> str:
    """The store's own message; else the first line of `obstore`'s."""
    answer = _ANSWER.search(str(error))
    return f"{answer[1]}: {answer[2].splitlines()[0]}" if answer is not None else first_line(error)
