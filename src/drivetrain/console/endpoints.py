"""The web application of the console: makes an endpoint of each route, serves the pages, and turns errors
into problem details.

Design: one endpoint for all routes reads parameters into the route's structs, calls its handler and writes
the answer. So all routes read, refuse and answer in the same way.

Invariants:

1. Every answer that is not 2xx or 3xx is a problem as JSON.
2. No browser can mistake an answer for markup or a script: each states its type, and `ConsoleMiddleware` adds
   `nosniff`.
3. A request that a route cannot read changes nothing.

Called by `console.server`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.routing import Route as Endpoint
from starlette.staticfiles import StaticFiles

from drivetrain.console.access.roles import Caller, Role
from drivetrain.console.answers.problem import Problem
from drivetrain.console.problems import RequestError, headers_of, problem_of, unexpected
from drivetrain.console.route import Call, Reply, Route
from drivetrain.console.routes.table import ROUTES
from drivetrain.console.services import Services
from drivetrain.errors import DrivetrainError, InternalError

log = logging.getLogger("drivetrain.console")

WEB: Final = Path(__file__).parent / "web"
LARGEST_BODY_BYTES: Final = 1024 * 1024
_PROBLEM: Final = "application/problem+json"


def web_application(services: Services) -> Starlette:
    """The console for these services."""
    routes: list[Any] = [
        Endpoint(route.path, _endpoint(route, services), methods=[route.method], name=route.name)
        for route in ROUTES
    ]
    if WEB.is_dir():
        routes.append(Mount("/", StaticFiles(directory=WEB, html=True)))
    return Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _unexpected})


def _endpoint(route: Route, services: Services) -> Callable[[Request], Awaitable[Response]]:
    fields = msgspec.structs.fields(route.query)
    repeated = frozenset(field.name for field in fields if isinstance(field.default, tuple))

    async def answer(request: Request) -> Response:
        caller: Caller | None = None
        try:
            caller = _caller(route, services, request)
            call = Call(
                services,
                caller,
                request.path_params,
                _query(route, repeated, request),
                await _body(route, request),
                request,
            )
            if route.method != "GET" and route.is_audited:
                services.audit.note(caller, route.name, _about(call))
            return _response(await route.handle(call), route)
        except ClientDisconnect:
            return Response(status_code=400)  # the client has gone
        except InternalError:
            log.exception("%s met a bug", route.name)
            return _problem(unexpected(request.url.path))
        except DrivetrainError as error:
            problem = problem_of(error, request.url.path)
            if caller is None or not caller.sees_errors:
                problem = msgspec.structs.replace(problem, user_traceback=None)  # it quotes lines of code
            return _problem(problem, headers_of(error))

    return answer


def _caller(route: Route, services: Services, request: Request) -> Caller:
    address = "" if request.client is None else request.client.host
    caller = services.access.caller(request.method, request.headers, address)
    if caller.role >= route.role:
        return caller
    if caller.role is Role.NOBODY:
        raise RequestError(
            "this needs a caller who has signed in",
            code="not-signed-in",
            expected=f"the role {route.role.shown}, or a higher one",
            remedy="open the address that `drivetrain console` printed, sign in, or send a token as "
            "`Authorization: Bearer`",
        )
    raise RequestError(
        "your role does not allow this",
        code="not-allowed",
        where=caller.name,
        expected=f"the role {route.role.shown}, or a higher one",
        got=caller.role.shown,
        remedy="ask an administrator of the console for that role",
    )


def _about(call: Call) -> dict[str, str]:
    """What a write is about, for the audit log: never a setting, which may hold a secret."""
    named = {
        name: value
        for parameters in (call.query, call.body)
        for name in ("file", "name", "replay_from")
        if isinstance(value := getattr(parameters, name, None), str)
    }
    return {**call.path, **named}


def _query(route: Route, repeated: frozenset[str], request: Request) -> msgspec.Struct:
    given: dict[str, str | list[str]] = {}
    for name, value in request.query_params.multi_items():
        if name in repeated:
            values = given.setdefault(name, [])
            assert isinstance(values, list)
            values.append(value)
        elif name in given:
            raise RequestError(
                "a parameter is given twice", where=name, expected="one value", remedy="leave one out"
            )
        else:
            given[name] = value
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise RequestError(
            "the parameters of the request cannot be used",
            got=str(error),
            remedy="see the route's parameters in /api/v1/openapi.json",
        ) from error


async def _body(route: Route, request: Request) -> msgspec.Struct | None:
    if route.body is None or isinstance(route.body, str):
        return None
    content = await limited(request, LARGEST_BODY_BYTES)
    try:
        return msgspec.json.decode(content or b"{}", type=route.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestError(
            "the body of the request cannot be read",
            expected="JSON as the route's schema in /api/v1/openapi.json describes it",
            got=str(error),
            remedy="correct the body",
        ) from error


async def limited(request: Request, most_bytes: int) -> bytes:
    """The body of a request, counted while it comes; raises RequestError (413) when it is larger."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise RequestError(
                "the body of the request is too large",
                code="too-large",
                expected=f"at most {most_bytes} bytes",
                remedy="send less",
            )
        parts.append(part)
    return b"".join(parts)


def _response(answer: msgspec.Struct | Reply | Response, route: Route) -> Response:
    if isinstance(answer, Response):
        return answer
    if isinstance(answer, Reply):
        return _json(answer.answer, answer.status, answer.headers)
    return _json(answer, route.statuses[0], {})


def _json(answer: msgspec.Struct, status: int, headers: Mapping[str, str], media: str = "") -> Response:
    return Response(
        msgspec.json.encode(answer),
        status,
        {"Cache-Control": "no-store", **headers},
        media or "application/json",
    )


def _problem(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return _json(problem, problem.status, headers or {}, _PROBLEM)


async def _refused(request: Request, error: Exception) -> Response:
    """What Starlette refuses before any route is called: no such path, or not by this method."""
    assert isinstance(error, HTTPException)
    codes = {404: "not-found", 405: "method-not-allowed"}
    refusal = RequestError(
        {404: "there is nothing at this path", 405: "this path does not take this method"}.get(
            error.status_code, str(error.detail)
        ),
        code=codes.get(error.status_code, "bad-request"),
        where=f"{request.method} {request.url.path}"[:500],
        remedy="/api/v1/openapi.json lists all routes",
    )
    return _problem(problem_of(refusal, request.url.path), error.headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("a request to %s failed", request.url.path, exc_info=error)
    return _problem(unexpected(request.url.path))
