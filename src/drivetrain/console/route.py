"""One route: its path, its parameters and answers, the role that it requires, and its handler.

Problem: a server, a document for clients, checks of access and tests must agree on every request.

Design: a frozen record for each; structs with named fields are the parameters and the answers.

Called by `console.routes.table`; read by `console.endpoints` and `console.openapi`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from drivetrain.console.access.roles import Caller, Role
from drivetrain.console.services import Services

V1: Final = "/api/v1"

Method = Literal["GET", "POST", "DELETE"]


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request without parameters in its query."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request on its way to a handler: `path` holds the parts of the path that vary, `query` is the route's
    query struct, `body` its body struct (None without one)."""

    services: Services
    caller: Caller
    path: Mapping[str, str]
    query: msgspec.Struct
    body: msgspec.Struct | None
    request: Request


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with a status or headers other than the route's."""

    answer: msgspec.Struct
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Call], Awaitable[msgspec.Struct | Reply | Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """A route. `name` is its operation id in OpenAPI, `role` the least that the caller must have.

    `answer` is a struct that is answered as JSON, or the media type of something else. `statuses` are those
    of answers that are no problem; `problems` those of problems that are special to it.
    """

    method: Method
    path: str
    name: str
    summary: str
    role: Role
    handle: Handler
    answer: type[msgspec.Struct] | str
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | str | None = None
    statuses: tuple[int, ...] = (200,)
    problems: tuple[int, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    """Request headers that it reads, with what they mean."""
    is_audited: bool = True
    """Whether each request that may write has a line in the audit log; otherwise its handler writes that."""

    @property
    def path_parameters(self) -> tuple[str, ...]:
        """The names of the parts of the path that vary."""
        return tuple(re.findall(r"\{(\w+)\}", self.path))
