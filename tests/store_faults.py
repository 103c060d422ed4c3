"""A proxy in front of an object store that makes requests fail, on loopback.

`plan(method, path)` decides the fate of each request. A client may then not learn what the store has done;
callers must cope with that.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit


class Fault(Enum):
    """The fate of a request."""

    NONE = "none"
    BUSY = "busy"
    """503, and the store never sees it."""
    REFUSED = "refused"
    """400, and the store never sees it."""
    LOST_ANSWER = "lost answer"
    """The store carries it out, and the connection ends before the answer."""
    CUT_BODY = "cut body"
    """The connection is reset in the middle of the answer's body."""
    SILENCE = "silence"
    """The store carries it out, and the answer does not come in time."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    """Clients open many connections at once; one that finds the queue full is tried again only after
    seconds."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: clients may end connections at any time."""


class FaultyStore:
    """The proxy; a context manager. `requests` counts by method."""

    def __init__(self, endpoint: str, silence_s: float = 8.0) -> None:
        self.plan: Callable[[str, str], Fault] = lambda method, path: Fault.NONE
        self.requests: Counter[str] = Counter()
        self.faults: Counter[Fault] = Counter()
        self._silence_s = silence_s
        upstream = urlsplit(endpoint).netloc
        self._server = _Server(("127.0.0.1", 0), self._handler(upstream))
        self._server.daemon_threads = True
        self._closing = threading.Event()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultyStore:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def refuses(self, client: BaseHTTPRequestHandler) -> bool:
        """Whether a request was refused at the door, and answered; for stores that have their own."""
        return False

    def asked(self, headers: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        """The headers of a request as the store expects them."""
        return headers.items()

    def answered(self, headers: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
        """The headers of an answer as clients expect them."""
        return headers

    def _handler(self, upstream: str) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_PUT(self) -> None:
                proxy._pass(self, upstream)

            do_GET = do_HEAD = do_DELETE = do_POST = do_PUT  # noqa: N815 - http.server's names

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler

    def _pass(self, client: BaseHTTPRequestHandler, upstream: str) -> None:
        body = client.rfile.read(int(client.headers.get("Content-Length") or 0))
        if self.refuses(client):
            return
        fault = self.plan(client.command, client.path)
        self.requests[client.command] += 1
        self.faults[fault] += 1
        if fault in (Fault.BUSY, Fault.REFUSED):
            refuse(client, 503 if fault is Fault.BUSY else 400, b"")
            return
        connection = http.client.HTTPConnection(upstream, timeout=30)
        try:
            connection.putrequest(client.command, client.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.asked(client.headers):
                connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if fault is Fault.SILENCE:
            self._closing.wait(self._silence_s)
        if fault in (Fault.LOST_ANSWER, Fault.SILENCE):
            _reset(client)
            return
        client.send_response_only(answer.status, answer.reason)
        for name, value in self.answered(answer.getheaders()):
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                client.send_header(name, value)
        length = answer.getheader("Content-Length") if client.command == "HEAD" else len(content)
        client.send_header("Content-Length", str(length or 0))
        client.end_headers()
        if fault is Fault.CUT_BODY:
            client.wfile.write(content[: len(content) // 2])
            _reset(client)
            return
        client.wfile.write(content)


def refuse(client: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    """Answer with an error."""
    client.send_response(status)
    client.send_header("Content-Length", str(len(body)))
    client.end_headers()
    client.wfile.write(body)


def _reset(client: BaseHTTPRequestHandler) -> None:
    client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.connection.close()
    client.close_connection = True
