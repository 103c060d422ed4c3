"""Where the time of a fragment's batches goes, how large its state is, how long it waited, how late its
results are.

Problem: a user who looks for the cause of a delay needs figures of every fragment, under the same names
wherever it runs. Counters must be summed over its attempts; the other figures are of the last batch.

Design: one record, made in the process that runs the fragment, from what Spark reports of a batch anyway and
from what the batch's own steps measure. It travels with the fragment's progress. The application master adds
up the counters of all attempts (`Counters`); all else is of the last attempt.

Invariants, checked by `check()`:

1. No figure is negative.
2. The phases of a batch are disjoint: together they are how long it took.
3. A counter never falls while an attempt lasts.

Made by `spark.batch.query_figures`; carried by `core.job.run_progress` and by the cluster's messages.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from drivetrain.errors import InternalError

LARGEST: Final = 2**53
Whole: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST)]
"""What a peer may say of any count: sums of a few stay within 64 bits."""

MOST_NAMED: Final = 1_000
"""So many sinks, channels or partitions of a fragment are named; figures of more are left out."""


class Phases(msgspec.Struct, frozen=True, array_like=True):
    """Where the time of batches went, in ms: disjoint spans of the wall clock.

    `waiting`: for space in a channel (flow control). `source`: looking for new input, and checking it.
    `planning`: making Spark's plans, those of the branches included. `computing`: Spark's jobs, which read,
    run Python functions, keep state, and write where a sink writes in Spark's tasks. `sink`: what sinks do
    themselves with results that are computed. `channel`: appending entries to channels. `log`: Spark's logs
    of offsets and commits. `other`: the rest.
    """

    waiting_ms: Whole = 0
    source_ms: Whole = 0
    planning_ms: Whole = 0
    computing_ms: Whole = 0
    sink_ms: Whole = 0
    channel_ms: Whole = 0
    log_ms: Whole = 0
    other_ms: Whole = 0

    @property
    def together_ms(self) -> int:
        """How long the batches took.

        >>> Phases(computing_ms=70, sink_ms=30).together_ms
        100
        """
        return sum(getattr(self, name) for name in self.__struct_fields__)

    def plus(self, other: Phases) -> Phases:
        """The phases of both."""
        return Phases(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class Counters(msgspec.Struct, frozen=True, array_like=True):
    """Figures that only grow: since the attempt began in a report, over all attempts in the status for
    followers.

    `batches` that were committed and the `phases` of all of them; `python_ms` and `state_ms` as in
    `LastBatch`. `blocked_ms` is for how long batches waited for the subscriber of each channel, by channel;
    `aligning_ms` for how long inputs were held at barriers.
    """

    batches: Whole = 0
    phases: Phases = Phases()
    python_ms: Whole = 0
    state_ms: Whole = 0
    aligning_ms: Whole = 0
    blocked_ms: dict[str, Whole] = {}


class LastBatch(msgspec.Struct, frozen=True, array_like=True):
    """The last batch that Spark has reported.

    `sinks_ms` is the part of each sink in `phases.sink_ms`. What follows is part of `phases.computing_ms`,
    but added up over Spark's tasks, which run beside each other: `python_ms` in Python functions and Tasks,
    with the conversion of their messages, by `python_tasks` tasks, the longest of which took
    `python_longest_ms`; `state_ms` for reading, changing and storing the state.
    """

    batch_id: int = -1
    rows: Whole = 0
    phases: Phases = Phases()
    sinks_ms: dict[str, Whole] = {}
    python_ms: Whole = 0
    python_longest_ms: Whole = 0
    python_tasks: Whole = 0
    state_ms: Whole = 0


class FragmentFigures(msgspec.Struct, frozen=True, array_like=True):
    """The figures of one fragment.

    `cores` is how many tasks run at once. `trigger_ms` is how long batches are meant to take (None: each
    begins when the one before it has ended). `state_rows` (keys of a state of Spark, buckets of Python state)
    and `state_bytes` are None without state, and so is `state_partitions`, into how many parts it is divided.
    `blocked_now_ms` is for how long the current batch has waited
    for space in a channel (0: it does not). `alignment_ms` is how long inputs were held for the checkpoint
    `alignment_txid`, the last one (-1: none).

    `latency_p50_ms` and `latency_p99_ms` are of the last `latency_batches` batches that took messages: the
    wall clock when the outputs had the batch minus the newest timestamp that the fragment had taken by then
    (None: no timestamps, or no such batch).

    `partition_rows` are the messages of each partition of its sources, "SOURCE/PARTITION", of the last one
    to two minutes in which there were any; `silent_partitions` are those that the clock ignores.
    """

    counters: Counters = Counters()
    last: LastBatch = LastBatch()
    cores: Whole = 1
    state_rows: Whole | None = None
    state_bytes: Whole | None = None
    blocked_now_ms: Whole = 0
    alignment_txid: int = -1
    alignment_ms: Whole = 0
    latency_p50_ms: int | None = None
    latency_p99_ms: int | None = None
    latency_batches: Whole = 0
    partition_rows: dict[str, Whole] = {}
    silent_partitions: tuple[str, ...] = ()
    trigger_ms: Whole | None = None
    state_partitions: Whole | None = None

    def check(self, before: FragmentFigures | None = None) -> None:
        """Raise InternalError when an invariant does not hold, after `before` of the same attempt."""
        for record in (self, self.counters, self.counters.phases, self.last, self.last.phases):
            for name in record.__struct_fields__:
                value = getattr(record, name)
                if (
                    isinstance(value, int)
                    and value < 0
                    and name not in ("batch_id", "alignment_txid", "latency_p50_ms", "latency_p99_ms")
                ):
                    raise InternalError(f"figures invariant 1: {name} is {value}")
        if before is None:
            return
        for name, was in flat(before.counters).items():
            if flat(self.counters).get(name, 0) < was:
                raise InternalError(f"figures invariant 3: {name} fell from {was}")


NO_FIGURES: Final = FragmentFigures()


def flat(counters: Counters) -> dict[str, int]:
    """The counters by name, to be added up; `counters_of` restores them."""
    named = {name: getattr(counters, name) for name in ("batches", "python_ms", "state_ms", "aligning_ms")}
    named |= {f"phase:{name}": getattr(counters.phases, name) for name in Phases.__struct_fields__}
    return named | {f"blocked:{channel}": ms for channel, ms in counters.blocked_ms.items()}


def counters_of(named: dict[str, int | float]) -> Counters:
    """The counters from their names; other names are left out.

    >>> counters_of({**flat(Counters(3, Phases(sink_ms=5), blocked_ms={"a--b": 7})), "rows": 9})
    Counters(batches=3, phases=Phases(waiting_ms=0, source_ms=0, planning_ms=0, computing_ms=0, sink_ms=5, \
channel_ms=0, log_ms=0, other_ms=0), python_ms=0, state_ms=0, aligning_ms=0, blocked_ms={'a--b': 7})
    """

    def of(name: str) -> int:
        return min(int(named.get(name, 0)), LARGEST)  # the decoder refuses larger numbers

    return Counters(
        of("batches"),
        Phases(*(of(f"phase:{name}") for name in Phases.__struct_fields__)),
        of("python_ms"),
        of("state_ms"),
        of("aligning_ms"),
        {name.removeprefix("blocked:"): of(name) for name in named if name.startswith("blocked:")},
    )
