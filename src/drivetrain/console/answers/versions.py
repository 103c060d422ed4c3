"""The versions of an application's graph.

Called by `console.handlers.versions`.
"""

from __future__ import annotations

import msgspec


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the graph: when it was recorded, for which user, and what became of it.

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
