"""The layer that every request passes first: it checks the host, removes a proxy's prefix, and takes the
token from an address.

Problem: another site can let its own name resolve to this machine, and its pages can then read our answers
(DNS rebinding); a proxy may or may not remove its prefix; a token in an address must not stay there.

Design: a layer around the web application. A request is accepted if its `Host` is an address, or a name of
this machine or of the configuration: DNS rebinding needs a name. The headers of every answer keep pages from
running scripts of other sites.

Invariants:

1. A request for another host reaches no handler.
2. The token of the printed address is in no page's address, and in no `Referer`.

Called by `console.server`.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drivetrain.console.access.access import Access
from drivetrain.console.addresses import TOKEN
from drivetrain.console.problems import RequestError, problem_of

_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
}


class ConsoleMiddleware:
    """The layer around `app`; `hosts` are further names of this machine,"""

    def __init__(self, app: ASGIApp, access: Access, hosts: frozenset[str], prefix: str) -> None:
        self._app: Final = app
        self._access: Final = access
        self._hosts: Final = hosts | {
            "localhost",
            socket.gethostname().lower(),
            socket.getfqdn().lower(),
        }
        self._prefix: Final = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request."""
        if scope["type"] != "http":
            return
        send = _with_headers(send)
        headers = Headers(scope=scope)
        refusal = self._foreign_host(headers.getlist("host"), scope["path"])
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        path: str = scope["path"]
        if self._prefix and not (path == self._prefix or path.startswith(f"{self._prefix}/")):
            path = self._prefix + path  # a proxy has removed it
        scope = {**scope, "path": path, "root_path": self._prefix}
        if path == self._prefix:
            await _moved(f"{self._prefix}/")(scope, receive, send)
            return
        if path == f"{self._prefix}/" and scope["method"] == "GET":
            entered = self._by_link(scope)
            if entered is not None:
                await entered(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _foreign_host(self, hosts: list[str], path: str) -> Response | None:
        if len(hosts) == 1 and self._is_ours(hosts[0]):
            return None
        error = RequestError(
            "the console does not serve this host",
            code="foreign-host",
            got=", ".join(hosts)[:200] or "no Host",
            remedy="add the name to console.hosts if browsers are to reach the console by it",
        )
        problem = problem_of(error, path)
        return Response(msgspec.json.encode(problem), problem.status, media_type="application/problem+json")

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if name is None:
            return False
        if name.lower().rstrip(".") in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _by_link(self, scope: Scope) -> Response | None:
        """Where a browser that comes by the printed address goes; None for one that does not."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in query if name == TOKEN]
        if not tokens:
            return None
        client = scope.get("client")
        cookie = self._access.sign_in_by_link(tokens[0], client[0] if client else "")
        if cookie is None:
            return PlainTextResponse(
                "This address is no longer valid: the console has been started again since.\n"
                "`drivetrain console` prints the present one.\n",
                401,
            )
        rest = urlencode([(name, value) for name, value in query if name != TOKEN])
        answer = _moved(f"{self._prefix}/{f'?{rest}' if rest else ''}")
        answer.headers["Set-Cookie"] = cookie
        return answer


def _moved(place: str) -> Response:
    return Response(status_code=303, headers={"Location": place, "Cache-Control": "no-store"})


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
        await send(message)

    return sending
