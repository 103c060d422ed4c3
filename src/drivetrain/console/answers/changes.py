"""What a change of a running application would do; and changes of its configuration.

Called by `console.handlers.changes` and `console.handlers.configuring`, and by
`console.planning.change_plans`, which makes these.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

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


class ConfigurationChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other values for keys of a running application's configuration, as a user writes them.

    `restore` are keys that get back the values with which it was started.
    """

    values: Annotated[dict[str, str], Meta(max_length=100)] = {}
    restore: Annotated[tuple[str, ...], Meta(max_length=100)] = ()


class ChangedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key whose value is different now: before and after, as a user writes them."""

    key: str
    before: str
    after: str


class ConfigurationChanged(msgspec.Struct, frozen=True, kw_only=True):
    """What is different now, from the next batch on; empty if these were the values already."""

    changed: tuple[ChangedKey, ...]
