"""The version of a graph that a plan describes, with all that is recorded of it.

Called by the modules that compare versions, and by those that record them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.graph_version import version_of
from drivetrain.runtime.sink_places import planned_places

if TYPE_CHECKING:
    from drivetrain.core.change.graph_version import GraphVersion
    from drivetrain.core.plan.plan import Plan


def planned_version(plan: Plan) -> GraphVersion:
    """The version that a plan describes, without a number yet."""
    return msgspec.structs.replace(version_of(plan, fingerprint), places=planned_places(plan))
