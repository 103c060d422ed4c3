"""The feeds of a Python iterable, and of lines from a TCP socket; see `spark.connector.feed`.

Called by the connectors of sources within the process.

Source: Apache Gearpump's source-end message store, for sources that cannot replay.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from drivetrain.errors import InputError, UnavailableError
from drivetrain.spark.channel.row_batches import SHOWN_CHARACTERS, UnreadableRow
from drivetrain.spark.connector.feed import Feed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_RETRY_S = 0.2
_RECEIVE_BYTES = 1 << 16
LONGEST_LINE_BYTES = 64 << 20
"""The longest line; of a line that does not end, no more than this is held in memory."""


class IterableFeed(Feed):
    """The rows of an iterable that yields the same rows in the same order in every run."""

    ends_on_close = False

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = rows

    def open(self, skip: int) -> Iterator[Any]:
        """The rows after the first `skip`."""
        return itertools.islice(iter(self._rows), skip, None)

    def close(self) -> None:
        """Does nothing: a waiting generator cannot be interrupted; its thread ends with the process."""


class SocketFeed(Feed):
    """The lines of a TCP server, as text without their line ends; UTF-8.

    Waits up to `connect_timeout_ms` for the server. The stream ends when the server closes the connection;
    losing the connection in any other way raises UnavailableError. A line that is not UTF-8, or is too long,
    raises InputError, or with `sets_aside` becomes an `UnreadableRow`.
    """

    ends_on_close = True

    def __init__(
        self, host: str, port: int, *, sets_aside: bool = False, connect_timeout_ms: int = 30_000
    ) -> None:
        self._address = (host, port)
        self._sets_aside = sets_aside
        self._connect_timeout_ms = connect_timeout_ms
        self._closed = threading.Event()
        self._socket: socket.socket | None = None

    @property
    def where(self) -> str:
        """The server as `host:port`."""
        return f"{self._address[0]}:{self._address[1]}"

    def open(self, skip: int) -> Iterator[str | UnreadableRow]:
        """The lines from now on: a socket does not repeat lines, so `skip` only numbers them."""
        pending, number = _Line(), skip
        with self._connect() as self._socket:
            if self._closed.is_set():  # `close` has come before there was a connection to shut down
                return
            while True:
                received = self._receive(self._socket)
                *ended, rest = received.split(b"\n")
                for part in ended:
                    number += 1
                    if not pending.bytes:
                        yield self._text(part, number)
                        continue
                    pending.add(part)
                    line, pending = pending, _Line()
                    yield self._text(bytes(line.content), number, is_too_long=line.is_too_long)
                pending.add(rest)
                if pending.is_too_long and not self._sets_aside:
                    raise self._bad(bytes(pending.content), number + 1, is_too_long=True)
                if not received:
                    if pending.bytes and not self._closed.is_set():  # the last line may lack its end
                        is_too_long = pending.is_too_long
                        yield self._text(bytes(pending.content), number + 1, is_too_long=is_too_long)
                    return

    def close(self) -> None:
        """Shut the connection down: a blocked read returns."""
        self._closed.set()
        if self._socket is not None:
            with suppress(OSError):  # the peer may have closed it first
                self._socket.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + self._connect_timeout_ms / 1000
        while True:
            try:
                connection = socket.create_connection(self._address, timeout=max(_RETRY_S, 1.0))
            except OSError as error:
                if self._closed.wait(_RETRY_S) or time.monotonic() > deadline:
                    raise UnavailableError(
                        "the socket source cannot be reached",
                        where=self.where,
                        expected="a TCP server that sends lines of text",
                        got=str(error),
                        remedy="start the server, or correct the host and port",
                    ) from error
            else:
                connection.settimeout(None)
                return connection

    def _receive(self, connection: socket.socket) -> bytes:
        try:
            return connection.recv(_RECEIVE_BYTES)
        except OSError as error:
            if self._closed.is_set():
                return b""
            raise UnavailableError(
                "the connection to the socket source was lost",
                where=self.where,
                got=str(error),
                remedy="run the same command again: lines received so far are stored",
            ) from error

    def _text(self, line: bytes, number: int, *, is_too_long: bool = False) -> str | UnreadableRow:
        cause: UnicodeDecodeError | None = None
        if not is_too_long:
            try:
                return line.rstrip(b"\r").decode()
            except UnicodeDecodeError as error:
                cause = error
        bad = self._bad(line, number, is_too_long=is_too_long)
        if not self._sets_aside:
            raise bad from cause
        return UnreadableRow(line[:SHOWN_CHARACTERS].decode(errors="backslashreplace"), bad.what)

    def _bad(self, line: bytes, number: int, *, is_too_long: bool) -> InputError:
        what = f"is longer than {LONGEST_LINE_BYTES >> 20} MiB" if is_too_long else "is not UTF-8"
        return InputError(
            f"line {number} {what}",
            where=self.where,
            expected=f"lines of UTF-8 text, of {LONGEST_LINE_BYTES >> 20} MiB at most",
            got=repr(line[:80]),
            remedy='correct the sender; or keep such lines as dead letters with on_bad_record="dead_letter"',
        )


class _Line:
    """A line that is being received; only the beginning of a too long one is kept."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.bytes = 0

    @property
    def is_too_long(self) -> bool:
        return self.bytes > LONGEST_LINE_BYTES

    def add(self, part: bytes) -> None:
        self.bytes += len(part)
        self.content += part
        if self.is_too_long:
            del self.content[SHOWN_CHARACTERS:]
