"""The line to a console: one HTTP request for each call, its answer decoded, its problem raised as an error.

Design: Python's own HTTP, in a thread for each call: calls are few, and a client then needs no package of the
extra `console`. A proxy of the environment is used, except for this machine. Redirects are not followed: they
would carry the token elsewhere. Certificates are verified, always.

Called by `console_client`.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from drivetrain.actor.remote.remote_settings import is_loopback
from drivetrain.cluster.client import client_errors
from drivetrain.cluster.client.console_calls import MEDIA, A, ClientCall
from drivetrain.cluster.code_transfer import CodeMissingError
from drivetrain.cluster.leader import NoLeaderError, NoMasterError
from drivetrain.config import Config
from drivetrain.config.catalog import client as keys
from drivetrain.config.references import resolved
from drivetrain.core.change.change_state import ChangeUnderwayError, RolledBackError
from drivetrain.errors import ConfigError, DrivetrainError, PeerViolationError, UnavailableError, UserError

G = TypeVar("G")

TIMEOUT_S: Final = 960.0
"""How long an answer may take: longer than a change, which waits for executors to compile it."""
_LARGEST: Final = 64 * 1024 * 1024
_ERRORS: Final[dict[str, type[DrivetrainError]]] = {
    error.code: error
    for error in (
        client_errors.UnknownApplicationError,
        client_errors.SpecificationTooLargeError,
        client_errors.ApplicationNameTakenError,
        client_errors.ApplicationNameError,
        client_errors.AlreadyOverError,
        client_errors.NoLogError,
        client_errors.StillUnderWayError,
        client_errors.ApplicationOverError,
        ChangeUnderwayError,
        RolledBackError,
        CodeMissingError,
        NoLeaderError,
        NoMasterError,
    )
}


class ConsoleUnreachableError(UnavailableError):
    """The console of `client.console` does not answer."""

    code = "console-unreachable"


class ConsoleRefusedError(UserError):
    """The console does not take the token, or its role does not allow the request."""

    code = "console-refused"


class ConsoleConnection:
    """Asks the console of `client.console` in `config`; raises ConfigError for an invalid address."""

    def __init__(self, config: Config) -> None:
        given = config[keys.CONSOLE].strip()
        parts = urlsplit(given)
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https") or not host or parts.username is not None:
            raise ConfigError(
                "this is not the address of a console",
                where=keys.CONSOLE.name,
                expected="https://HOST, or what `drivetrain console` printed",
                got=given.partition("?")[0],
                remedy="correct --console",
            )
        # The address that a console prints has a token in it.
        in_address = parse_qs(parts.query).get("token", [""])[0]
        self._token: Final = in_address or resolved(config[keys.CONSOLE_TOKEN], keys.CONSOLE_TOKEN.name)
        self.address: Final = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        if parts.scheme == "http" and not is_loopback(host) and not config[keys.CONSOLE_WITHOUT_TLS]:
            raise ConfigError(
                "the token would cross the network unencrypted",
                where=self.address,
                expected="https://",
                remedy=f"give the console a certificate; or, in a network that you trust, "
                f"--set {keys.CONSOLE_WITHOUT_TLS.name}=true",
            )
        self._opener: Final = urllib.request.build_opener(
            urllib.request.ProxyHandler({} if is_loopback(host) else None),
            urllib.request.HTTPSHandler(context=_context(config)),
            _NoRedirects(),
        )

    async def call(self, call: ClientCall[A], arguments: msgspec.Struct) -> A:
        """The answer to a call of `console_calls`; raises the refusal of the cluster or the console.

        Raises ConsoleUnreachableError, ConsoleRefusedError, PeerViolationError if it is not a console that
        answers.
        """
        body = msgspec.msgpack.encode(arguments)
        content = await asyncio.to_thread(self._request, f"calls/{call.name}", {}, body)
        try:
            answer: A = msgspec.msgpack.decode(content, type=call.answer, dec_hook=_no_reference)
        except msgspec.MsgspecError as error:
            raise self._not_understood(str(error)) from error
        return answer

    def get(self, path: str, query: Mapping[str, str], answer: type[G]) -> G:
        """The answer to a GET below /api/v1; raises like `call`."""
        content = self._request(path, query, None)
        try:
            return msgspec.json.decode(content, type=answer)
        except msgspec.MsgspecError as error:
            raise self._not_understood(str(error)) from error

    def _request(self, path: str, query: Mapping[str, str], body: bytes | None) -> bytes:
        address = f"{self.address}/api/v1/{path}" + (f"?{urlencode(query)}" if query else "")
        request = urllib.request.Request(address, data=body)  # noqa: S310 - http or https, see above
        if body is not None:
            request.add_header("Content-Type", MEDIA)
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                return self._whole(answer.read(_LARGEST + 1))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error.code, error.read(_LARGEST)) from None
        except ssl.SSLCertVerificationError as error:
            raise self._not_verified(error) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise self._not_verified(reason) from error
            raise ConsoleUnreachableError(
                "the console does not answer",
                where=self.address,
                got=str(reason or error),
                remedy="check --console, and that `drivetrain console` runs there; applications keep running",
            ) from error

    def _whole(self, content: bytes) -> bytes:
        if len(content) > _LARGEST:
            raise self._not_understood(f"an answer of more than {_LARGEST} bytes")
        return content

    def _refusal(self, status: int, content: bytes) -> DrivetrainError:
        """The error of an answer that is a problem."""
        try:
            problem = json.loads(content)
            code, what = str(problem["code"]), str(problem["detail"])
        except (ValueError, KeyError, TypeError):
            return self._not_understood(f"status {status}, without a problem of ours")
        fields = {name: problem.get(name) for name in ("where", "expected", "got", "remedy")}
        if status in (401, 403):
            fields["remedy"] = (
                f"set {keys.CONSOLE_TOKEN.name} to a reference to a token, or the environment variable "
                "DRIVETRAIN_CLIENT_CONSOLE_TOKEN; `drivetrain console-access add-token NAME --role user` "
                "makes one where the console runs"
            )
            return ConsoleRefusedError(what, **{**fields, "where": self.address})
        kind = _ERRORS.get(code)
        if kind is None:
            kind = UserError if status < 500 and status != 429 else UnavailableError
        error = kind(what, **fields)
        error.code = code  # type: ignore[misc]
        if problem.get("user_traceback"):
            error.user_traceback = problem["user_traceback"]  # type: ignore[attr-defined]
        return error

    def _not_verified(self, error: ssl.SSLCertVerificationError) -> ConfigError:
        return ConfigError(
            "the certificate of the console cannot be trusted",
            where=self.address,
            got=error.verify_message or str(error),
            remedy=f"set {keys.CONSOLE_CA.name} to the PEM file of the authority that signed it, and use "
            "the name for which it was issued",
        )

    def _not_understood(self, got: str) -> PeerViolationError:
        return PeerViolationError(
            "the answer is not that of a console of this version",
            where=self.address,
            got=got,
            remedy="check --console; use one version of Drivetrain everywhere",
        )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an error."""

    def redirect_request(self, *_: Any) -> None:
        """No other request."""


def _context(config: Config) -> ssl.SSLContext:
    file = config[keys.CONSOLE_CA]
    try:
        return ssl.create_default_context(cafile=file or None)
    except OSError as error:
        raise ConfigError(
            "the certificates for the console cannot be read",
            where=f"{keys.CONSOLE_CA.name} = {file}",
            got=str(error),
            remedy="give the path of a PEM file",
        ) from error


def _no_reference(kind: type, value: object) -> object:
    raise ValueError(f"{kind.__name__} from a console")
