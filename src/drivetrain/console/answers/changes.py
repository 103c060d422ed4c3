"""A change of a running application, as it would be.

Called by `console.handlers.changes`, and by `console.planning.changes_planned`, which makes these.
"""

from __future__ import annotations

import msgspec

from drivetrain.core.picture.compared_graph import ComparedGraph


class ProcessorChange(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to a processor, and why; `before` and `after` describe it (null: it is not there).

    `fate` is kept, swapped, started, stopped, drained, "after a stop" or refused; `mark` is its kind: kept,
    changed, new, gone or refused.
    """

    processor: str
    fate: str
    mark: str
    why: str
    before: str | None
    after: str | None


class PlannedChange(msgspec.Struct, frozen=True, kw_only=True):
    """The change from the version `against`, which is in force, to an uploaded graph.

    `can_be_made` is whether the running application can take it; `verdict` explains it in words. `graph`
    has the processors of both.
    """

    against: int
    can_be_made: bool
    verdict: str
    changes: tuple[ProcessorChange, ...]
    graph: ComparedGraph
