"""The figures of a fragment, and those of an application over time.

Called by `console.answers.progress` and `console.watching.figure_answers`.
"""

from __future__ import annotations

import msgspec


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of batches went: durations that do not overlap, and together are how long they took.

    `waiting_ms`: for room in a channel. `source_ms`: looking for new input. `planning_ms`: making Spark's
    plans. `computing_ms`: Spark's jobs, with Python functions and state. `sink_ms`: what sinks do with
    computed results. `channel_ms`: appending to channels. `log_ms`: Spark's logs of offsets and commits.
    """

    waiting_ms: int
    source_ms: int
    planning_ms: int
    computing_ms: int
    sink_ms: int
    channel_ms: int
    log_ms: int
    other_ms: int


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch; all times are durations. `sinks_ms` is the part of each sink in the phase of the sinks.

    `python_ms` (Python functions and Tasks, in `python_tasks` tasks of Spark) and `state_ms` are parts of the
    computing, added up over tasks that run beside each other: they may be more than it.
    """

    batch_id: int
    messages: int
    phases: Phases
    sinks_ms: dict[str, int]
    python_ms: int
    python_longest_ms: int
    python_tasks: int
    state_ms: int


class BatchTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all batches since the application master began; all times are durations.

    `python_ms` and `state_ms` are as in a batch. `aligning_ms` is for how long inputs were held at barriers,
    `blocked_ms`, by channel, for how long batches waited for its subscriber.
    """

    batches: int
    phases: Phases
    python_ms: int
    state_ms: int
    aligning_ms: int
    blocked_ms: dict[str, int]


class FragmentFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a fragment; all times are durations.

    `last_batch` is null before the first. Batches are meant to take `trigger_ms` (null: each begins when the
    one before it has ended), and `cores` tasks run at once. `state_rows` (keys), `state_bytes` and
    `state_partitions` (the parts into which it is divided) are null without state. Latency is from the newest
    timestamp that was taken until the outputs had the batch, over the last `latency_batches` batches with
    messages (null: no timestamps). `blocked_now_ms` is for how long the present batch has waited for room in
    a channel, `alignment_ms` for how long inputs were held for the checkpoint `alignment_txid`, the last one
    (null: none).
    """

    last_batch: Batch | None
    totals: BatchTotals
    cores: int
    trigger_ms: int | None
    state_rows: int | None
    state_bytes: int | None
    state_partitions: int | None
    latency_p50_ms: int | None
    latency_p99_ms: int | None
    latency_batches: int
    blocked_now_ms: int
    alignment_txid: int | None
    alignment_ms: int


class PhaseHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of the phases' sums: what was spent since the application master began, in ms."""

    waiting_ms: tuple[int | None, ...]
    source_ms: tuple[int | None, ...]
    planning_ms: tuple[int | None, ...]
    computing_ms: tuple[int | None, ...]
    sink_ms: tuple[int | None, ...]
    channel_ms: tuple[int | None, ...]
    log_ms: tuple[int | None, ...]
    other_ms: tuple[int | None, ...]


class FragmentHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of a fragment, each as long as the history's `at_ms`; null where a figure is not known.

    `batches`, `messages`, `blocked_ms` and `phases` are sums since the application master began; `batch_ms`
    (of the last batch), `clock_delay_ms` and the latencies are durations; `clock_ms` are moments.
    """

    attempt: tuple[int | None, ...]
    batches: tuple[int | None, ...]
    messages: tuple[int | None, ...]
    batch_ms: tuple[int | None, ...]
    lag_messages: tuple[int | None, ...]
    clock_ms: tuple[int | None, ...]
    clock_delay_ms: tuple[int | None, ...]
    state_rows: tuple[int | None, ...]
    state_bytes: tuple[int | None, ...]
    latency_p50_ms: tuple[int | None, ...]
    latency_p99_ms: tuple[int | None, ...]
    blocked_ms: tuple[int | None, ...]
    phases: PhaseHistory


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Columns, one entry per moment `at_ms`, the oldest first.

    Moments are ten seconds apart for 26 hours and five minutes for 30 days, more where several were merged:
    then sums and states are those of the last of them, delays and durations the longest, `disk_free_bytes`
    the least. Sums begin at zero with each application master. What no console recorded is missing.
    """

    app_id: str
    at_ms: tuple[int, ...]
    clock_ms: tuple[int | None, ...]
    late: tuple[int, ...]
    dead_letters: tuple[int, ...]
    disk_free_bytes: tuple[int | None, ...]
    fragments: dict[str, FragmentHistory]
