"""What takes most of the time of a batch, and what to do about it.

Problem: "its batches take 45 s" leaves the user to guess whether the database, a Python function, the state
or the disk is slow.

Design: the phases of the last batch are compared. Of what Spark's jobs took, the part of Python code and of
the state is estimated: Spark adds both up over tasks that run beside each other, so the sum is divided by the
cores, and Python code took at least as long as its longest task. Spark's time for a Python state contains the
Python code; what is known to be Python is therefore not counted as state again. What is left of the jobs is
Spark's own work, which includes the writing of sinks that write in Spark's tasks. Waiting for a full channel
is not a cause: the rules about waiting (`waits`) find its reason.

Invariants:

1. The parts of a batch are together not longer than the batch.
2. A batch of no duration has no cause.

Called by `batches` and `waits`, and by commands that show where the time goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from drivetrain.core.figures import show_share, show_span
from drivetrain.core.job.fragment_figures import FragmentFigures, LastBatch


class Part(StrEnum):
    """A part of a batch that can be its cause of slowness."""

    SOURCE = "source"
    PYTHON = "python"
    STATE = "state"
    SPARK = "spark"
    SINK = "sink"
    PLANNING = "planning"
    CHANNEL = "channel"
    LOG = "log"


@dataclass(frozen=True)
class Cause:
    """The longest part of a batch, which took `ms` of the batch's `of_ms`; `sink` is the sink's id if it is
    one."""

    part: Part
    ms: int
    of_ms: int
    sink: str | None = None

    @property
    def what(self) -> str:
        """The part in words that fit after "for".

        >>> Cause(Part.SINK, 800, 1000, "to-db").what
        'writing to to-db'
        """
        return f"writing to {self.sink}" if self.part is Part.SINK and self.sink else _WORDS[self.part]

    @property
    def sentence(self) -> str:
        """What took most of the batch.

        >>> Cause(Part.PYTHON, 45_000, 60_000).sentence
        '45.0 s of the last 1 min 0 s (75 %) went to Python functions and Tasks'
        """
        share = show_share(self.ms / self.of_ms)
        return f"{show_span(self.ms)} of the last {show_span(self.of_ms)} ({share}) went to {self.what}"

    @property
    def remedy(self) -> str:
        """What makes that part shorter."""
        return _REMEDIES[self.part]


_WORDS: Final = {
    Part.SOURCE: "looking for new input",
    Part.PYTHON: "Python functions and Tasks",
    Part.STATE: "reading and storing state",
    Part.SPARK: "Spark's own processing",
    Part.SINK: "sinks",
    Part.PLANNING: "planning",
    Part.CHANNEL: "writing to channels",
    Part.LOG: "Spark's logs of offsets and commits",
}
_REMEDIES: Final = {
    Part.SOURCE: "look at the source: a slow broker, or a directory with very many files",
    Part.PYTHON: "write the function with Spark's columns, make it cheaper for each message, or give Spark "
    "more cores",
    Part.STATE: "use fewer keys, shorter windows or an earlier end of state, or give Spark more cores and "
    "memory",
    Part.SPARK: "give Spark more cores; if the sink writes in Spark's tasks, look at what it writes to",
    Part.SINK: "look at what the sink writes to: it is slow, or far away",
    Part.PLANNING: "make batches larger, so that there are fewer, or the graph of the fragment smaller",
    Part.CHANNEL: "put the state directory (state.dir) on a faster disk",
    Part.LOG: "put the state directory (state.dir) on a faster disk",
}


def cause_of(figures: FragmentFigures) -> Cause | None:
    """The longest part of the last batch; None before the first."""
    last = figures.last
    of_ms = last.phases.together_ms
    found = max(_parts(last, max(1, figures.cores)), key=lambda part: part[1], default=None)
    if not of_ms or found is None or not found[1]:
        return None
    return Cause(found[0], found[1], of_ms, found[2])


def _parts(last: LastBatch, cores: int) -> Iterator[tuple[Part, int, str | None]]:
    phases = last.phases
    python_ms = min(phases.computing_ms, max(last.python_longest_ms, last.python_ms // cores))
    of_state_ms = max(0, last.state_ms - last.python_ms) // cores
    state_ms = min(phases.computing_ms - python_ms, of_state_ms)
    yield from ((Part.SINK, min(ms, phases.sink_ms), id) for id, ms in last.sinks_ms.items())
    yield Part.PYTHON, python_ms, None
    yield Part.STATE, state_ms, None
    yield Part.SOURCE, phases.source_ms, None
    yield Part.PLANNING, phases.planning_ms, None
    yield Part.CHANNEL, phases.channel_ms, None
    yield Part.LOG, phases.log_ms, None
    yield Part.SPARK, phases.computing_ms - python_ms - state_ms, None
