"""Requests that change the configuration of an application while it runs.

Called by `console.routes.writes`.
"""

from __future__ import annotations

from drivetrain.cluster.client.refusals import already_over
from drivetrain.console.answers.changes import ChangedKey, ConfigurationChange, ConfigurationChanged
from drivetrain.console.embedded.runs import EmbeddedRuns
from drivetrain.console.problems import RequestError
from drivetrain.console.route import Call
from drivetrain.core.job.changeable_keys import CHANGEABLE, require_changeable
from drivetrain.runtime.control_requests import ask_to_configure


async def configure(call: Call) -> ConfigurationChanged:
    """Have an application use other values of configuration keys, from its next batch on."""
    client, body = call.services.client, call.body
    assert isinstance(body, ConfigurationChange)
    if not body.values and not body.restore:
        raise RequestError(
            "the request names no key that is to change",
            expected='{"values": {KEY: VALUE}}, or {"restore": [KEY]}',
            remedy=f"keys that may change are {', '.join(CHANGEABLE)}",
        )
    require_changeable([*body.values, *body.restore])
    view = await client.application(call.path["app"])
    if view.state.is_over:
        raise already_over(view.app_id)
    if isinstance(client, EmbeddedRuns):
        rundir = await client.rundir(view)
        changed = await client.in_thread(lambda: ask_to_configure(rundir, body.values, body.restore))
    else:
        changed = await client.configure(view.app_id, body.values, body.restore)
    return ConfigurationChanged(
        changed=tuple(ChangedKey(key=one.name, before=one.before, after=one.after) for one in changed)
    )
