"""The application times for which exact states are available: of one processor, and of all together.

Problem: each persistent Task takes pictures of its state at its own step, and keeps them for its own time. To
compare two Tasks one needs a time for which both have a picture.

Design: the times of one are a range of multiples of its step (`PictureTimes`). The times of all are the
multiples of the steps' least common multiple that lie in every range, again a `PictureTimes`. The newest of
these is the application time of a checkpoint (`CheckpointRecord.as_of_ms`).

Invariants:

1. `common_times` contains a time exactly if each of the given ones does.

Called by `core.checkpoint.transaction`, and by `spark.state` for processors and their snapshots. Source:
Apache Gearpump's checkpoint time; decision 0053 lists the differences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec


class PictureTimes(msgspec.Struct, frozen=True):
    """The multiples of `step_ms` from `first_ms` to `last_ms`, both included; empty if first > last."""

    first_ms: int
    last_ms: int
    step_ms: int

    def __contains__(self, at_ms: int) -> bool:
        """Whether the exact states as of a time are available."""
        return self.first_ms <= at_ms <= self.last_ms and at_ms % self.step_ms == 0

    @property
    def newest_ms(self) -> int | None:
        """The newest of the times; None when there is none."""
        return self.last_ms if self.first_ms <= self.last_ms else None


def times_between(from_ms: int, to_ms: int, step_ms: int) -> PictureTimes:
    """The multiples of a step between two times, both included.

    >>> times_between(1, 10, 4)
    PictureTimes(first_ms=4, last_ms=8, step_ms=4)
    """
    return PictureTimes(-(-from_ms // step_ms) * step_ms, to_ms - to_ms % step_ms, step_ms)


def common_times(each: Iterable[PictureTimes]) -> PictureTimes | None:
    """The times that all of these contain; None without any range.

    >>> common_times([PictureTimes(0, 24, 4), PictureTimes(6, 30, 6)])
    PictureTimes(first_ms=12, last_ms=24, step_ms=12)
    """
    known = list(each)
    if not known:
        return None
    step_ms = math.lcm(*(times.step_ms for times in known))
    return times_between(max(t.first_ms for t in known), min(t.last_ms for t in known), step_ms)
