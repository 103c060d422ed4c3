"""What differs between any two versions of a graph, processor by processor, without regard to their state.

Problem: a user who looks back wants to see how the graph of March differs from that of today. A `difference`
shows what a running application would do with a change, which is irrelevant between two earlier versions.

Design: two records of a processor are compared part by part, and each part that differs is named. A `Mark` is
the result in one word; a picture gives each a colour, a sign and a shape.

| mark | meaning |
|---|---|
| new | only the newer version has the processor |
| gone | only the older version has it |
| changed | both have it, and a part of it differs |
| kept | both have it, and nothing differs but perhaps the line in which it is written |
| refused | the state does not allow the change; only of a `difference` |

Called by `drivetrain plan --against`, `drivetrain versions --between`, and the console.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from drivetrain.core.change.difference import ChangeKind, Difference
from drivetrain.core.change.graph_version import GraphVersion, ProcessorRecord


class Mark(StrEnum):
    """The kind of difference at a processor, in one word."""

    NEW = "new"
    GONE = "gone"
    CHANGED = "changed"
    KEPT = "kept"
    REFUSED = "refused"


_MARKS: Final = {
    ChangeKind.KEPT: Mark.KEPT,
    ChangeKind.SWAPPED: Mark.CHANGED,
    ChangeKind.RESTARTED: Mark.CHANGED,
    ChangeKind.DROPPED: Mark.CHANGED,
    ChangeKind.STARTED: Mark.NEW,
    ChangeKind.STOPPED: Mark.GONE,
    ChangeKind.DRAINED: Mark.GONE,
    ChangeKind.AFTER_STOP: Mark.CHANGED,
    ChangeKind.REFUSED: Mark.REFUSED,
}

SIGNS: Final = {Mark.NEW: "+", Mark.GONE: "−", Mark.CHANGED: "~", Mark.KEPT: "", Mark.REFUSED: "!"}
"""A sign for each mark, for those who cannot tell its colour."""


@dataclass(frozen=True)
class ComparedProcessor:
    """A processor of one or both versions; `why` names the difference. None: the version does not have it."""

    id: str
    mark: Mark
    why: str
    before: ProcessorRecord | None
    after: ProcessorRecord | None
    fragment_before: str | None
    fragment_after: str | None

    @property
    def line(self) -> str:
        """Where it is written; the newer version counts."""
        record = self.after or self.before
        return "" if record is None else record.line


@dataclass(frozen=True)
class VersionComparison:
    """All processors of two versions; those of the newer one first, in its order."""

    old: GraphVersion
    new: GraphVersion
    processors: tuple[ComparedProcessor, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return all(each.mark is Mark.KEPT for each in self.processors)

    @property
    def marks(self) -> dict[str, tuple[Mark, str]]:
        """By processor its mark, and the same in a word."""
        return {each.id: (each.mark, each.mark.value) for each in self.processors}


def compare_versions(old: GraphVersion, new: GraphVersion) -> VersionComparison:
    """Compare two versions of an application's graph."""
    ids = dict.fromkeys((*new.processors, *old.processors))
    return VersionComparison(old, new, tuple(_compared(old, new, id) for id in ids))


def marks_of(found: Difference) -> Mapping[str, tuple[Mark, str]]:
    """By processor the mark of a difference, and what happens to the processor in words."""
    return {change.id: (_MARKS[change.fate], change.fate.value) for change in found.changes}


def _compared(old: GraphVersion, new: GraphVersion, id: str) -> ComparedProcessor:
    before, after = old.processors.get(id), new.processors.get(id)
    was_in, is_in = old.fragment_of(id), new.fragment_of(id)
    if before is None:
        return ComparedProcessor(id, Mark.NEW, "", None, after, None, is_in)
    if after is None:
        return ComparedProcessor(id, Mark.GONE, "", before, None, was_in, None)
    differing = [*_differing(before, after), *_moved(old, new, id, was_in, is_in)]
    mark = Mark.CHANGED if differing else Mark.KEPT
    return ComparedProcessor(id, mark, "; ".join(differing), before, after, was_in, is_in)


def _differing(before: ProcessorRecord, after: ProcessorRecord) -> Iterator[str]:
    if before.inputs != after.inputs:
        yield f"it reads from {_listed(after.inputs)}, no longer from {_listed(before.inputs)}"
    if (before.kind, before.described) != (after.kind, after.described):
        yield "its arguments have changed"
    elif before.fingerprint != after.fingerprint:
        yield "its code has changed"


def _moved(
    old: GraphVersion, new: GraphVersion, id: str, was_in: str | None, is_in: str | None
) -> Iterator[str]:
    if was_in != is_in:
        yield (
            f"it runs in fragment {is_in}, no longer in {was_in}"
            if is_in and was_in
            else "its kind has changed"
        )
    elif was_in is not None and is_in is not None:
        was_trunk, is_trunk = id in old.fragments[was_in].trunk, id in new.fragments[is_in].trunk
        if was_trunk != is_trunk:
            yield "it is a part of the trunk now" if is_trunk else "it is a part of the branches now"


def _listed(ids: tuple[str, ...]) -> str:
    return ", ".join(ids) or "nothing"
