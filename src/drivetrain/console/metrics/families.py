"""The metrics of the console: names, labels and meanings.

Names follow Prometheus' conventions: the prefix `drivetrain_`, base units (seconds, bytes), `_total` for
counters. Labels are the application and a part of it (a fragment, a channel, a processor), never a batch, an
attempt or a key: there are always new ones of these, and a monitoring system keeps each for ever.

Called by `console.metrics.collector`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Family:
    """A metric; the name of a counter is without its `_total`."""

    name: str
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    help: str


_APP: Final = ("application",)
_FRAGMENT: Final = ("application", "fragment")
_CHANNEL: Final = ("application", "channel", "producer", "subscriber")
_PROCESSOR: Final = ("application", "processor")


def _gauge(name: str, labels: tuple[str, ...], help: str) -> Family:
    return Family(f"drivetrain_{name}", "gauge", labels, help)


def _counter(name: str, labels: tuple[str, ...], help: str) -> Family:
    return Family(f"drivetrain_{name}", "counter", labels, help)


CONNECTED: Final = _gauge("console_connected", (), "Whether the console reaches a leading master.")
MASTERS: Final = _gauge("masters", (), "Masters on the list.")
LEADING: Final = _gauge("master_leads", ("master",), "Whether the master leads.")
TERM: Final = _gauge("master_term", (), "The highest term that a master knows.")
WORKERS: Final = _gauge("workers", (), "Registered workers.")
SLOTS: Final = _gauge("worker_slots", ("worker",), "Slots of the worker.")
FREE: Final = _gauge("worker_free_slots", ("worker",), "Slots of the worker that are free.")
CPU: Final = _gauge("worker_cpu_ratio", ("worker",), "Share of the machine's cores in use, 0 to 1.")
MEMORY: Final = _gauge("worker_free_memory_bytes", ("worker",), "Memory of the machine that is free.")
APPLICATIONS: Final = _gauge("applications", ("state",), "Applications by state.")

UP: Final = _gauge("application_up", _APP, "Whether the application's master answers.")
EPOCHS: Final = _counter("application_epochs", _APP, "Application masters that were started.")
CLOCK: Final = _gauge(
    "application_clock_seconds", _APP, "The application's clock: event time, as seconds since 1970."
)
FINDINGS: Final = _gauge(
    "application_findings", ("application", "severity"), "Findings of the diagnosis, by severity."
)
SKIPPED: Final = _counter("application_skipped_messages", _APP, "Messages that were older than the replay.")
LOST: Final = _counter("application_lost_messages", _APP, "Messages that were gone before they were read.")
FRACTION: Final = _gauge(
    "application_input_ratio", _APP, "Share of the bounded input that was taken, 0 to 1."
)

RUNNING: Final = _gauge("fragment_running", _FRAGMENT, "Whether the fragment runs.")
STARTS: Final = _counter("fragment_starts", _FRAGMENT, "How often the fragment was started.")
MESSAGES: Final = _counter("fragment_messages", _FRAGMENT, "Messages that the fragment took.")
RATE: Final = _gauge("fragment_messages_per_second", _FRAGMENT, "Messages that it takes in a second, now.")
BATCH: Final = _gauge("fragment_batch_seconds", _FRAGMENT, "How long its last batch took.")
LAG: Final = _gauge("fragment_lag_messages", _FRAGMENT, "Messages of its sources that it has not taken.")
DELAY: Final = _gauge(
    "fragment_clock_delay_seconds", _FRAGMENT, "How far its clock is behind the newest timestamp it took."
)
STALLED: Final = _gauge(
    "fragment_stalled_seconds", _FRAGMENT, "For how long it has held up the application's clock."
)
SILENT: Final = _gauge(
    "fragment_silent_partitions", _FRAGMENT, "Partitions of its sources that the clock ignores."
)
STATE_ROWS: Final = _gauge("fragment_state_rows", _FRAGMENT, "Keys in its state, or buckets of Python state.")
STATE_BYTES: Final = _gauge("fragment_state_bytes", _FRAGMENT, "Size of its state.")
LATENCY: Final = _gauge(
    "fragment_latency_seconds",
    (*_FRAGMENT, "percentile"),
    "From the newest timestamp it took until its outputs had the batch; a percentile of recent batches.",
)
BATCHES: Final = _counter("fragment_batches", _FRAGMENT, "Batches that were committed.")
PHASES: Final = _counter(
    "fragment_batch_phase_seconds", (*_FRAGMENT, "phase"), "How long its batches spent in the phase."
)
PYTHON: Final = _counter(
    "fragment_python_seconds", _FRAGMENT, "Time in Python functions and Tasks, added up over Spark's tasks."
)
STATE_TIME: Final = _counter(
    "fragment_state_seconds", _FRAGMENT, "Time for reading and storing state, added up over Spark's tasks."
)
ALIGNING: Final = _counter(
    "fragment_alignment_seconds", _FRAGMENT, "For how long inputs were held at barriers of checkpoints."
)
WAITED: Final = _counter(
    "fragment_blocked_seconds",
    (*_FRAGMENT, "channel"),
    "For how long its batches waited for room in the channel.",
)

CHANNEL_LAG: Final = _gauge("channel_lag_messages", _CHANNEL, "Messages that the subscriber has not read.")
CHANNEL_LAG_BYTES: Final = _gauge("channel_lag_bytes", _CHANNEL, "Bytes that the subscriber has not read.")
CHANNEL_LAG_TIME: Final = _gauge("channel_lag_seconds", _CHANNEL, "Event time that the subscriber is behind.")
KEPT: Final = _gauge("channel_kept_bytes", _CHANNEL, "What the channel takes on disk.")
BLOCKED: Final = _gauge("channel_blocked_seconds", _CHANNEL, "For how long its producer has been waiting.")
LOSSES: Final = _counter("channel_losses", _CHANNEL, "Segments and entries that were lost or damaged.")
REPAIRS: Final = _counter("channel_repairs", _CHANNEL, "Entries that were computed again.")

IN: Final = _counter("processor_in_messages", _PROCESSOR, "Messages that went into the processor.")
OUT: Final = _counter("processor_out_messages", _PROCESSOR, "Messages that came out of the processor.")
LATE: Final = _counter("processor_late_messages", _PROCESSOR, "Messages that came too late for it.")
DEAD: Final = _counter("processor_dead_letters", _PROCESSOR, "Messages that it could not process.")

CHECKPOINTS: Final = _counter("checkpoints_completed", _APP, "Checkpoints that were completed.")
CHECKPOINTS_FAILED: Final = _counter("checkpoints_failed", _APP, "Checkpoints that failed.")
CHECKPOINT_AGE: Final = _gauge("checkpoint_age_seconds", _APP, "How long ago the last checkpoint began.")
CHECKPOINT_TIME: Final = _gauge("checkpoint_seconds", _APP, "How long the last checkpoint took.")
CHECKPOINT_BYTES: Final = _gauge("checkpoint_bytes", _APP, "Size of the last checkpoint.")

FAMILIES: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Family))
"""All of them."""
