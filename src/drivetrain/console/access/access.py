"""Decides who makes a request, and whether they may.

Problem: a console that anyone can reach lets anyone run code in the cluster; and a browser sends its cookies
even with requests that a page of another site caused.

Design: programs show a bearer token. Browsers have a cookie, which they get for a password, or on loopback
for the random token in the address that `drivetrain console` prints. The cookie cannot be read by scripts. A
request that changes anything is accepted from a browser only if its `Origin` shows that it comes from a page
of this console.

Invariants:

1. Tokens, passwords and cookies are neither kept nor logged, only their hashes.
2. A caller without proof has the role nobody; a wrong proof is an error, not the same as no proof.
3. When a user or a token is removed, or a password is changed, its sessions and streams end.
4. Checking a password takes as long for a name that does not exist, and at most `MOST_CHECKS` run at once.

Called by `console.services`, `console.middleware` and `console.handlers.session`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from drivetrain.console.access.access_file import AccessFile, Entries, scrypt, sha256
from drivetrain.console.access.roles import Caller, Role, role_of
from drivetrain.console.access.sessions import LONGEST_MS, Session, Sessions
from drivetrain.console.access.throttle import Throttle
from drivetrain.console.problems import RequestError
from drivetrain.errors import DrivetrainError

MOST_CHECKS: Final = 2
LONGEST_PASSWORD: Final = 1_000
COOKIE: Final = "drivetrain-console"
LINK: Final = "link"
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_DUMMY_SALT: Final = bytes(16)

log = logging.getLogger("drivetrain.console")


class Access:
    """The rules of access; `link` is the random token in the printed address, None if there is none."""

    def __init__(
        self, file: AccessFile, link: str | None, *, port: int, prefix: str, is_secure: bool
    ) -> None:
        self._file: Final = file
        self._entries = file.entries()
        self._link: Final = None if link is None else sha256(link)
        self._sessions: Final = Sessions()
        self._throttle: Final = Throttle()
        self._checks: Final = asyncio.Semaphore(MOST_CHECKS)
        self.cookie: Final = f"{COOKIE}-{port}"
        self._attributes: Final = (
            f"Path={prefix or '/'}; HttpOnly; SameSite=Lax{'; Secure' if is_secure else ''}"
        )

    @property
    def takes_passwords(self) -> bool:
        """Whether there are users who can sign in by name and password."""
        return bool(self._now().users)

    def caller(self, method: str, headers: Headers, address: str) -> Caller:
        """The caller of a request; raises RequestError for a wrong token, or a write from another origin."""
        authorization = headers.get("authorization")
        if authorization is not None:
            return self._of_token(authorization, address)
        cookie = self._cookie_of(headers)
        if cookie is None:
            return Caller("nobody", Role.NOBODY, "none", address)
        proof = sha256(cookie)
        session = self._session(proof)
        if session is None:
            return Caller("nobody", Role.NOBODY, "none", address)
        if method not in _READING:
            require_same_origin(headers)
        return Caller(session.name, session.role, "session", address, proof)

    def still_may(self, caller: Caller) -> bool:
        """Whether the caller's proof is still valid."""
        match caller.means:
            case "session":
                return self._session(caller.proof) is not None
            case "token":
                return any(token.sha256 == caller.proof for token in self._now().tokens)
            case _:
                return True

    async def sign_in(self, name: str, password: str, address: str) -> tuple[Caller, str]:
        """The caller and the cookie for a name and a password; raises RequestError."""
        now_ms = _now_ms()
        wait_ms = self._throttle.wait_ms(name, address, now_ms)
        if wait_ms:
            wait_s = (wait_ms + 999) // 1000
            raise RequestError(
                "too many wrong passwords",
                code="too-many",
                remedy=f"try again in {wait_s} s",
                retry_after_s=wait_s,
            )
        user = next((user for user in self._now().users if user.name == name), None)
        salt = _DUMMY_SALT if user is None else bytes.fromhex(user.salt)
        async with self._checks:
            found = await asyncio.to_thread(scrypt, password[:LONGEST_PASSWORD], salt)
        if user is None or not hmac.compare_digest(found.hex(), user.hash):
            self._throttle.failed(name, address, now_ms)
            raise RequestError(
                "the name or the password is wrong",
                code="not-signed-in",
                remedy="check both; `drivetrain console-access add-user` sets another password",
            )
        self._throttle.succeeded(name, address)
        return self._begin(user.name, role_of(user.role), user.hash, address)

    def sign_in_by_link(self, token: str, address: str) -> str | None:
        """The cookie for the token of the printed address; None for any other."""
        if self._link is None or not hmac.compare_digest(sha256(token), self._link):
            return None
        return self._begin(LINK, Role.ADMIN, self._link, address)[1]

    def sign_out(self, caller: Caller) -> str:
        """End the caller's session; returns the cookie that takes its place."""
        if caller.means == "session":
            self._sessions.end(caller.proof)
        return f"{self.cookie}=; Max-Age=0; {self._attributes}"

    # ---- inside

    def _of_token(self, authorization: str, address: str) -> Caller:
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() == "bearer":
            proof = sha256(text.strip())
            if self._link is not None and hmac.compare_digest(proof, self._link):
                return Caller(LINK, Role.ADMIN, "link", address, proof)
            for token in self._now().tokens:
                if hmac.compare_digest(proof, token.sha256):
                    return Caller(token.name, role_of(token.role), "token", address, proof)
        raise RequestError(
            "this token is not known",
            code="not-signed-in",
            expected="Authorization: Bearer, and a token of this console",
            remedy="`drivetrain console-access add-token` makes one",
        )

    def _begin(self, name: str, role: Role, basis: str, address: str) -> tuple[Caller, str]:
        text = secrets.token_urlsafe(32)
        proof = sha256(text)
        self._sessions.begin(proof, name, role, basis, _now_ms())
        cookie = f"{self.cookie}={text}; Max-Age={LONGEST_MS // 1000}; {self._attributes}"
        return Caller(name, role, "session", address, proof), cookie

    def _session(self, proof: str) -> Session | None:
        session = self._sessions.use(proof, _now_ms())
        if session is None or session.basis == self._link:
            return session
        user = next((user for user in self._now().users if user.name == session.name), None)
        if user is None or user.hash != session.basis:
            self._sessions.end(proof)
            return None
        return session

    def _cookie_of(self, headers: Headers) -> str | None:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return None
        return None if found is None else found.value

    def _now(self) -> Entries:
        try:
            self._entries = self._file.entries()
        except DrivetrainError as error:
            log.warning("the users and tokens from before are still used: %s", error.what)
        return self._entries


def require_same_origin(headers: Headers) -> None:
    """Raise RequestError unless a page of this console made the browser ask."""
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is None or urlsplit(origin).netloc.lower() != host.lower():
        raise RequestError(
            "a page of another site sent this request",
            code="foreign-origin",
            expected=f"an Origin at {host[:200]}",
            got=(origin or "none")[:200],
            remedy="use the console's own pages; programs use a token in place of a cookie",
        )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
