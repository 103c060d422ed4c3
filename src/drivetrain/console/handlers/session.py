"""Requests about signing in, and the document that describes all requests.

Called by `console.routes.table`.
"""

from __future__ import annotations

from starlette.responses import Response

from drivetrain.console.access.access import require_same_origin
from drivetrain.console.access.roles import Caller, Role
from drivetrain.console.answers.session import SessionState, SignIn
from drivetrain.console.route import Call, Reply


async def state(call: Call) -> SessionState:
    """The user that is signed in."""
    return _state(call, call.caller)


async def sign_in(call: Call) -> Reply:
    """Sign in; the answer sets a cookie."""
    body = call.body
    assert isinstance(body, SignIn)
    if "origin" in call.request.headers:
        require_same_origin(call.request.headers)
    caller, cookie = await call.services.access.sign_in(body.name, body.password, call.caller.address)
    return Reply(_state(call, caller), 201, {"Set-Cookie": cookie})


async def sign_out(call: Call) -> Reply:
    """Sign out; the answer deletes the cookie."""
    cookie = call.services.access.sign_out(call.caller)
    nobody = Caller("nobody", Role.NOBODY, "none", call.caller.address)
    return Reply(_state(call, nobody), 200, {"Set-Cookie": cookie})


async def openapi(call: Call) -> Response:
    """The document."""
    return Response(call.services.document, media_type="application/json")


def _state(call: Call, caller: Caller) -> SessionState:
    return SessionState(
        name=caller.name,
        role=caller.role.shown,
        means=caller.means,
        takes_passwords=call.services.access.takes_passwords,
    )
