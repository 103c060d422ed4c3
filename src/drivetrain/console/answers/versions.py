"""The versions of an application's graph.

Called by `console.handlers.versions`.
"""

from __future__ import annotations

import msgspec

from drivetrain.core.picture.compared_graph import ComparedGraph


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the graph: when it was recorded, for which user, and its outcome.

    `made_how` is run, update or rollback, `follows` the version that was in force before (null: none).
    `trial` is under way or interrupted while the change to it has no outcome; `outcome` is done, rolled
    back or refused, null for one that was started. `in_words` puts all of that in words. A change that failed
    did so in `failed_fragment`, because of `why`. `changes` are the fates of the processors that were not
    kept.
    """

    number: int
    made_at_ms: int
    made_by: str
    made_how: str
    follows: int | None
    is_in_force: bool
    trial: str | None
    outcome: str | None
    in_words: str
    ended_at_ms: int | None
    failed_fragment: str | None
    why: str | None
    processors: int
    changes: dict[str, str]


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """The versions that are kept, the newest first."""

    versions: tuple[Version, ...]


class VersionProcessor(msgspec.Struct, frozen=True, kw_only=True):
    """A processor of a version: what it does, what it reads, its fragment, and the line that declares it."""

    processor: str
    text: str
    inputs: tuple[str, ...]
    fragment: str | None
    line: str


class VersionGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The graph of a version."""

    number: int
    processors: tuple[VersionProcessor, ...]


class ProcessorDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What differs at a processor; `before` and `after` describe it (null: the version does not have it).

    `mark` is new, gone, changed or kept, and `why` names what has changed. `line` is where it is written, in
    the newer version that has it.
    """

    processor: str
    mark: str
    why: str
    before: str | None
    after: str | None
    fragment_before: str | None
    fragment_after: str | None
    line: str


class VersionDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What differs in version `number` against version `against`: processor by processor, and as one
    picture."""

    number: int
    against: int
    processors: tuple[ProcessorDifference, ...]
    graph: ComparedGraph
