"""A store with Google's interface on this machine for the tests: S3Proxy behind a translation of headers.

Google's XML interface, which `obstore` uses, differs from that of S3 in the names of headers and in who may
send a request. fake-gcs-server, the usual emulator, does not serve: its XML interface takes no writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from drivetrain.runtime.objects.settings import StoreSettings
from object_store import S3Server
from store_faults import FaultyStore, refuse
from stored_place import StoredPlace

TOKEN = "a-token-of-tests"
ENVIRONMENT = {"TESTS_GS_TOKEN": TOKEN}
"""The variables that `GoogleStore.settings` refers to."""
_METADATA = ("x-goog-meta-", "x-amz-meta-")
_ONLY_CREATES = ("x-goog-if-generation-match", "0")


class GoogleStore(FaultyStore):
    """The store; requests may be made to fail, as in `FaultyStore`."""

    def __init__(self, directory: Path) -> None:
        self._store = S3Server(directory, is_open=True)
        super().__init__(self._store.start().endpoint)

    def start(self) -> GoogleStore:
        """Start it."""
        self.__enter__()
        return self

    def kill(self) -> None:
        """End it at once."""
        self.__exit__(None, None, None)
        self._store.kill()

    def bucket(self, name: str) -> Path:
        """Make a bucket; the folder with its objects."""
        return self._store.bucket(name)

    def place(self, name: str) -> StoredPlace:
        """A new bucket as a place."""
        self.bucket(name)
        return StoredPlace(f"gs://{name}", self.sets())

    def settings(self, *, retry_ms: int = 20_000) -> StoreSettings:
        """How it is reached."""
        return StoreSettings(
            gs_endpoint=self.endpoint, gs_token="${TESTS_GS_TOKEN}", gs_timeout_ms=5_000, gs_retry_ms=retry_ms
        )

    def sets(self) -> dict[str, str]:
        """The same as keys of a configuration."""
        return {
            "gs.endpoint": self.endpoint,
            "gs.token": "${TESTS_GS_TOKEN}",
            "gs.timeout": "5 s",
            "gs.retry-for": "20 s",
        }

    def refuses(self, client: BaseHTTPRequestHandler) -> bool:
        """Refuse who has not the token."""
        if client.headers.get("Authorization") == f"Bearer {TOKEN}":
            return False
        refuse(client, 401, b"<Error><Code>AuthenticationRequired</Code><Message>no token</Message></Error>")
        return True

    def asked(self, headers: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        """The headers of a request as S3Proxy expects them."""
        for name, value in headers.items():
            if name.lower() == _ONLY_CREATES[0]:
                assert value == _ONLY_CREATES[1]
                yield "If-None-Match", "*"
            elif name.lower() != "authorization":
                yield name.lower().replace(*_METADATA), value

    def answered(self, headers: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
        """The headers of an answer as Google's clients expect them."""
        for name, value in headers:
            yield name.lower().replace(*reversed(_METADATA)), value
