"""A bucket of an S3 store, reached by the package `obstore`.

The problem: a request whose answer is lost may have been carried out. Sent again, a conditional request is
then refused because of itself, and its sender would take its own object for another's.

The design: an object that is created if absent carries a nonce in its metadata. A refused writer reads the
nonce: its own means that it has succeeded. Requests without an answer, and those that the store answers with
an error of its own (5xx, 429), are tried again for a while, which is right for all of them: reading and
deleting change nothing the second time, and replacing writes the same.

Invariants: those of `ObjectStore`.

Called by `locations`, which opens a store for each bucket. Source: the documentation of `obstore`, and of
Amazon S3 on conditional writes.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from drivetrain.errors import MissingDependencyError, UnavailableError, UserError
from drivetrain.runtime.objects.object_store import StoreAccessError, StoredObject
from drivetrain.runtime.objects.repeated_requests import answered
from drivetrain.runtime.objects.settings import StoreSettings

if TYPE_CHECKING:
    from obstore.store import S3Store

T = TypeVar("T")

PAGE: Final = 1000
_NONCE: Final = "drivetrain-nonce"
_NO_BUCKET: Final = "NoSuchBucket"
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
        self, bucket: str, settings: StoreSettings, secrets: Mapping[str, str] | None = None
    ) -> None:
        self._where: Final = f"s3://{bucket}"
        self._retry_s: Final = settings.retry_ms / 1000
        self._client: Final = _client(bucket, settings, settings.secrets() if secrets is None else secrets)

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
        last = after
        while page := self._asked("LIST", prefix, partial(self._page, prefix, last)):
            yield page
            last = page[-1].path
            if len(page) < PAGE:
                return

    def delete(self, path: str) -> None:
        """Delete an object; it may be gone already."""
        import obstore

        try:
            self._asked("DELETE", path, lambda: obstore.delete(self._client, path))
        except FileNotFoundError:
            return

    def _page(self, prefix: str, after: str) -> list[StoredObject]:
        import obstore

        listing = obstore.list(self._client, prefix or None, offset=after or None, chunk_size=PAGE)
        return [_found(one) for one in next(listing, [])]

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
            lambda error: _final(error, method, where),
            lambda error: _unavailable(method, where, error),
        )


def _client(bucket: str, settings: StoreSettings, secrets: Mapping[str, str]) -> S3Store:
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise MissingDependencyError(
            "object stores need a package that is not installed",
            where=f"s3://{bucket}",
            expected="obstore",
            remedy="pip install 'drivetrain[s3]'; in a cluster on every worker",
        ) from error
    place = {"endpoint": settings.endpoint, "region": settings.region}
    given: Any = {**secrets, **{name: text for name, text in place.items() if text is not None}}
    timeout = timedelta(milliseconds=settings.timeout_ms)
    return S3Store(
        bucket,
        **given,
        virtual_hosted_style_request=not settings.path_style,
        client_options={
            "allow_http": True,
            "timeout": timeout,
            "connect_timeout": min(timeout, timedelta(seconds=5)),
        },
        retry_config={"max_retries": 2, "retry_timeout": timeout},
    )


def _found(meta: Any) -> StoredObject:
    return StoredObject(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))


def _final(error: Exception, method: str, where: str) -> Exception | None:
    """The error to raise; None if the request is to be tried again."""
    text = str(error)
    found = _STATUS.search(text)
    status = int(found[1]) if found is not None else 0
    if _NO_BUCKET in text:
        return NoBucketError(
            "there is no such bucket",
            where=where,
            remedy="create it, or correct its name, s3.endpoint or s3.region",
        )
    if status in (401, 403) or any(sign in text for sign in _NO_TOKEN):
        return StoreAccessError(
            "the request to the object store is not allowed",
            where=where,
            got=f"{method}: {_shown(error)}",
            remedy="renew the credentials (s3.access-key, s3.secret-key, s3.session-token, or those of the "
            "environment or the machine's role), or allow them this request; then run the same command again",
        )
    if isinstance(error, FileNotFoundError):
        # A name that was taken a moment ago may be free again.
        return None if method == "PUT" else FileNotFoundError(f"there is no object {where}")
    if 400 <= status < 500 and status not in _RETRIED:
        return UserError(
            "the object store refuses a request",
            where=where,
            got=f"{method}: {_shown(error)}",
            remedy="check the name of the bucket, s3.endpoint, s3.region and s3.path-style",
        )
    return None


def _unavailable(method: str, where: str, error: Exception) -> UnavailableError:
    return UnavailableError(
        "the object store does not answer",
        where=where,
        got=f"{method}: {_shown(error)}",
        remedy="check s3.endpoint and the network (`drivetrain doctor` with the place), then run the same "
        "command again: it continues; s3.retry-for is how long to try",
    )


def _shown(error: Exception) -> str:
    """The store's own message; else the first line of `obstore`'s, whose other lines dump its structures."""
    answer = _ANSWER.search(str(error))
    return f"{answer[1]}: {answer[2]}" if answer is not None else str(error).strip().splitlines()[0][:400]
