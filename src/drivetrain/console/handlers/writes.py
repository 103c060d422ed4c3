"""Requests that change an existing application: kill, restart, replay, savepoint.

Called by `console.routes.table`, `console.handlers.changes` and `console.handlers.versions` (`begun`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from drivetrain.cluster.client.refusals import already_over, no_savepoint_of
from drivetrain.cluster.client.submission import own_savepoint_place
from drivetrain.cluster.messages.applications import ApplicationView
from drivetrain.console.answers.operations import Kind, Operation, Operations, Replay, Savepoint
from drivetrain.console.route import V1, Call, Reply


async def kill(call: Call) -> Reply:
    """End an application; the operation has succeeded once the registry shows it."""
    client, view = call.services.client, await _view(call)
    if view.state.is_over:
        raise already_over(view.app_id)

    async def doing() -> Mapping[str, str]:
        return {"state": (await client.kill(view.app_id)).state.value}

    return begun(call, "kill", view, doing())


async def restart(call: Call) -> Reply:
    """Start an application again, with its state."""
    call.services.require_cluster("start an application again", "start it with drivetrain run")
    client, view = call.services.client, await _view(call)

    async def doing() -> Mapping[str, str]:
        return {"epoch": str((await client.restart(view.app_id)).epoch)}

    return begun(call, "restart", view, doing())


async def replay(call: Call) -> Reply:
    """Have an application process messages again, from a moment on."""
    call.services.require_cluster("begin a replay", "stop it, and give drivetrain run --replay-from")
    client, view, body = call.services.client, await _view(call), call.body
    assert isinstance(body, Replay)

    async def doing() -> Mapping[str, str]:
        return {"epoch": str((await client.replay(view.app_id, body.replay_from)).epoch)}

    return begun(call, "replay", view, doing())


async def savepoint(call: Call) -> Reply:
    """Have an application write a savepoint below its state directory."""
    client, view, body = call.services.client, await _view(call), call.body
    assert isinstance(body, Savepoint)
    if view.state.is_over:
        raise no_savepoint_of(view, view.app_id)
    place = own_savepoint_place(view, body.name)

    async def doing() -> Mapping[str, str]:
        return {"place": str(await client.savepoint(view.app_id, place, body.timeout))}

    return begun(call, "savepoint", view, doing())


async def operation(call: Call) -> Operation:
    """An operation as it is now."""
    return call.services.operations.operation(call.path["operation"])


async def operations(call: Call) -> Operations:
    """The latest operations."""
    return Operations(operations=tuple(call.services.operations.newest()))


async def _view(call: Call) -> ApplicationView:
    call.services.operations.require_room()
    return await call.services.client.application(call.path["app"])


def begun(call: Call, kind: Kind, view: ApplicationView | None, doing: Awaitable[Mapping[str, str]]) -> Reply:
    """The reply to a request that has begun an operation on an application, or (None) on the cluster."""
    path, app_id = call.request.url.path, None if view is None else view.app_id
    operation = call.services.operations.begin(kind, app_id, call.caller.name, doing, path)
    root = call.request.scope.get("root_path", "")
    return Reply(operation, 202, {"Location": f"{root}{V1}/operations/{operation.operation_id}"})
