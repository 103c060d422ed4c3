"""The routes that change something, and those of the operations that they begin.

Called by `console.routes.table`.
"""

from __future__ import annotations

from typing import Final

from drivetrain.cluster.client.console_calls import MEDIA
from drivetrain.console.access.roles import Role
from drivetrain.console.answers.changes import ConfigurationChange, ConfigurationChanged, PlannedChange
from drivetrain.console.answers.graph import PlannedUpload
from drivetrain.console.answers.operations import Operation, Operations, Replay, Savepoint, Submitted
from drivetrain.console.handlers import calls, changes, configuring, local_workers, uploads, versions, writes
from drivetrain.console.route import V1, Route

APP: Final = f"{V1}/applications/{{app}}"
_USER: Final = Role.USER
_ADMIN: Final = Role.ADMIN

WRITES: Final[tuple[Route, ...]] = (
    Route(
        "POST",
        f"{V1}/plans",
        "planUpload",
        "How an uploaded application would run.",
        _USER,
        uploads.plan,
        PlannedUpload,
        query=uploads.UploadQuery,
        body=uploads.MEDIA,
        problems=(400, 413, 429),
    ),
    Route(
        "POST",
        f"{V1}/applications",
        "submitUpload",
        "Submit an uploaded application.",
        _USER,
        uploads.submit,
        Submitted,
        query=uploads.UploadQuery,
        body=uploads.MEDIA,
        statuses=(201, 200),
        problems=(400, 409, 413, 429),
        headers={"Idempotency-Key": "The same key and upload again give the same application."},
    ),
    Route(
        "POST",
        f"{APP}/kill",
        "killApplication",
        "End an application.",
        _USER,
        writes.kill,
        Operation,
        statuses=(202,),
        problems=(404, 409),
    ),
    Route(
        "POST",
        f"{APP}/restart",
        "restartApplication",
        "Start an application again, with its state.",
        _USER,
        writes.restart,
        Operation,
        statuses=(202,),
        problems=(404,),
    ),
    Route(
        "POST",
        f"{APP}/replay",
        "replayApplication",
        "Have an application process messages again, from a moment on.",
        _USER,
        writes.replay,
        Operation,
        body=Replay,
        statuses=(202,),
        problems=(404,),
    ),
    Route(
        "POST",
        f"{APP}/savepoints",
        "makeSavepoint",
        "Have an application write a savepoint.",
        _USER,
        writes.savepoint,
        Operation,
        body=Savepoint,
        statuses=(202,),
        problems=(404, 409),
    ),
    Route(
        "POST",
        f"{APP}/changes/plan",
        "planChange",
        "What an uploaded file would change of a running application.",
        _USER,
        changes.plan,
        PlannedChange,
        query=changes.ChangeQuery,
        body=uploads.MEDIA,
        problems=(400, 404, 409, 413, 429),
    ),
    Route(
        "POST",
        f"{APP}/changes",
        "makeChange",
        "Change a running application to an uploaded file.",
        _USER,
        changes.make,
        Operation,
        query=changes.ChangeQuery,
        body=uploads.MEDIA,
        statuses=(202,),
        problems=(400, 404, 409, 413, 429),
    ),
    Route(
        "POST",
        f"{APP}/configuration",
        "configureApplication",
        "Change keys of a running application's configuration, from its next batch on.",
        _USER,
        configuring.configure,
        ConfigurationChanged,
        body=ConfigurationChange,
        problems=(400, 404, 409, 503),
    ),
    Route(
        "POST",
        f"{APP}/versions/{{number}}/rollback",
        "rollBack",
        "Change an application back to a version while it runs.",
        _USER,
        versions.roll_back,
        Operation,
        statuses=(202,),
        problems=(404, 409),
    ),
    Route(
        "POST",
        f"{V1}/workers",
        "addWorker",
        "Start another worker, where `drivetrain local` runs the cluster.",
        _ADMIN,
        local_workers.add,
        Operation,
        statuses=(202,),
        problems=(409, 503),
    ),
    Route(
        "DELETE",
        f"{V1}/workers/{{worker}}",
        "removeWorker",
        "End a worker that `drivetrain local` runs; it hands over what it runs.",
        _ADMIN,
        local_workers.remove,
        Operation,
        statuses=(202,),
        problems=(404, 409, 503),
    ),
    Route(
        "POST",
        f"{V1}/calls/{{call}}",
        "callForClient",
        "Ask the cluster for a client that reaches it only here, as `drivetrain apps --console` does.",
        _USER,
        calls.call,
        MEDIA,
        body=MEDIA,
        problems=(400, 404, 409, 413, 504),
        is_audited=False,
    ),
    Route(
        "GET",
        f"{V1}/operations",
        "listOperations",
        "The latest operations of this console.",
        _USER,
        writes.operations,
        Operations,
    ),
    Route(
        "GET",
        f"{V1}/operations/{{operation}}",
        "getOperation",
        "An operation as it is now.",
        _USER,
        writes.operation,
        Operation,
    ),
)
