"""The clock of a source whose messages come in partitions: each has its own, the smallest counts.

Problem: messages are nearly in order within a partition, but not between partitions. The largest timestamp of
all ignores a partition that is an hour behind: its messages would be late. But a partition without any
messages must not hold the clock for ever.

Design: a partition's clock is its largest timestamp so far minus the disorder. The source's clock is the
smallest of the partitions that are not *idle*. A partition is idle when the source was looked at `idle_ms` or
more after the partition's last message, and it had none. It matters when the source was *looked at*, not what
time it is: while a batch runs for minutes, or waits for its subscribers, nothing looks at the source, and no
partition becomes idle. A look is a batch (as of when Spark planned it) or a query that reports that it waits
for data.

When all partitions are idle the clock stands: a source without any messages may be unreachable, and its
partitions will continue where they were. The partitions that gave messages last then hold the clock, as they
did until they became idle too: how often the source is looked at in between makes no difference. Without a
timeout (`idle_ms` None: a bounded source, whose messages all exist already) no partition is ever idle.

An idle partition that gives messages again counts again. Those messages may be late, and are counted as late.

Invariants, checked by `check`:

1. The clock never moves back.
2. When it moves, it is the clock of a partition that is not idle, or was the last to become so, and the clock
   of no other such partition is lower.
3. A partition that has given nothing yet, and is not idle, holds the clock.

Times are ms of a clock that never goes back. Called by `spark.prepare.source_clock`. Source: Apache Flink's
watermarks per split and idleness; Apache Kafka's partitions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from drivetrain.core.clock.time_bounds import clock_behind
from drivetrain.errors import ConfigError, InternalError

P = TypeVar("P", bound=Hashable)


class SourceClocks(Generic[P]):
    """The clocks of `partitions`, at least one; raises ConfigError for negative values.

    `disorder_ms` is how much older than the newest message of its partition another may be.
    """

    def __init__(
        self, partitions: Iterable[P], *, disorder_ms: int, idle_ms: int | None, now_ms: int
    ) -> None:
        self._gave: dict[P, int] = dict.fromkeys(
            partitions, now_ms
        )  # when it last gave a message, or when the source was opened
        if not self._gave or disorder_ms < 0 or (idle_ms is not None and idle_ms < 1):
            raise ConfigError(
                "the clocks of a source cannot be built",
                expected="a partition, a disorder of 0 ms or more, an idle timeout of 1 ms or more",
                got=f"{len(self._gave)} partitions, {disorder_ms} ms, {idle_ms} ms",
            )
        self._newest: dict[P, int] = {}
        self._disorder_ms: Final = disorder_ms
        self._idle_ms: Final = idle_ms
        self._looked_ms = now_ms
        self._clock_ms: int | None = None

    @property
    def clock_ms(self) -> int | None:
        """No message below it is expected, unless late; None while a partition has no messages yet."""
        return self._clock_ms

    @property
    def newest_ms(self) -> Mapping[P, int]:
        """The largest timestamp of each partition that has given one."""
        return self._newest

    @property
    def idle(self) -> tuple[P, ...]:
        """The partitions that are idle, in their order."""
        return tuple(p for p in self._gave if self._is_idle(p))

    @property
    def holding(self) -> P | None:
        """The partition that the clock waits for: the first that gave nothing yet, else the slowest."""
        active = [p for p in self._gave if not self._is_idle(p)]
        unheard = [p for p in active if p not in self._newest]
        if unheard or not active:
            return unheard[0] if unheard else None
        return min(active, key=lambda p: self._newest[p])

    def observe(self, newest_ms: Mapping[P, int], planned_ms: int, now_ms: int) -> None:
        """A batch planned at `planned_ms` had these largest timestamps, by partition.

        Raises InternalError, and changes nothing, for an unknown partition.
        """
        unknown = [p for p in newest_ms if p not in self._gave]
        if unknown:
            raise InternalError(f"a source has no partition {unknown[0]!r}")
        for partition, ms in newest_ms.items():
            self._newest[partition] = max(ms, self._newest.get(partition, ms))
            # As of the batch's end, so that the time from there to this call does not count as idle.
            self._gave[partition] = max(now_ms, self._gave[partition])
        self.looked(planned_ms)

    def looked(self, at_ms: int) -> None:
        """At that time the reader found no more messages in the source."""
        self._looked_ms = max(at_ms, self._looked_ms)
        last_ms = max(self._gave.values())
        active = [p for p in self._gave if not self._is_idle(p)]
        active = active or [p for p, gave_ms in self._gave.items() if gave_ms == last_ms]
        if any(p not in self._newest for p in active):
            return
        clock_ms = clock_behind(min(self._newest[p] for p in active), self._disorder_ms)
        self._clock_ms = clock_ms if self._clock_ms is None else max(self._clock_ms, clock_ms)

    def restore(self, clock_ms: int) -> None:
        """Begin at a clock that was announced before a restart."""
        self._clock_ms = clock_ms if self._clock_ms is None else max(self._clock_ms, clock_ms)

    def _is_idle(self, partition: P) -> bool:
        return self._idle_ms is not None and self._looked_ms - self._gave[partition] >= self._idle_ms

    def check(self) -> None:
        """Raise InternalError when an invariant does not hold."""
        active = [p for p in self._gave if not self._is_idle(p)]
        clocks = [clock_behind(self._newest[p], self._disorder_ms) for p in active if p in self._newest]
        if self._clock_ms is None and active and len(clocks) == len(active):
            raise InternalError("invariant 3: all partitions have spoken, and there is no clock")
        is_behind = self._clock_ms is not None and bool(clocks) and self._clock_ms < min(clocks)
        if is_behind and len(clocks) == len(active):
            raise InternalError(f"invariant 2: the clock is {self._clock_ms}, not {min(clocks)}")
