"""Keys of running an application: where it keeps its state and how it takes its input."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import choice, duration_ms, integer, local_path, size_bytes

STATE_DIR: Final = Key(
    "state.dir",
    local_path(),
    ".drivetrain",
    "Directory of checkpoints, channels and state, one folder per application. "
    "Deleting it starts every application over.",
)

MAX_BATCH_BYTES: Final = Key(
    "run.max-batch-bytes",
    size_bytes(minimum_bytes=1024),
    "512 MiB",
    "The most that a source hands to one batch, so that memory stays bounded whatever the backlog.",
)

MAX_BATCH_ROWS: Final = Key(
    "run.max-batch-rows",
    integer(minimum=0),
    0,
    "The most messages that a source hands to one batch; 0 means that only run.max-batch-bytes limits it, "
    "which alone limits files.",
)

MIN_BATCH_BYTES: Final = Key(
    "run.min-batch-bytes",
    size_bytes(minimum_bytes=1),
    "1 MiB",
    "What a source may hand to one batch however slow the batches are; see run.batch-target.",
)

BATCH_TARGET: Final = Key(
    "run.batch-target",
    duration_ms(minimum_ms=1),
    "10 s",
    "How long a batch should take at most: after a longer one, sources hand less to the next. "
    "Backlogs are taken in batches as large as that allows.",
)

KEEP_BYTES: Final = Key(
    "replay.keep-bytes",
    size_bytes(minimum_bytes=0),
    "256 MiB",
    "How much of what a source said that cannot be asked twice is kept after it was processed, for replays; "
    "each source has so much.",
)

KEEP_AGE: Final = Key(
    "replay.keep-age",
    duration_ms(minimum_ms=0),
    "1 d",
    "How long what such a source said is kept at most after it was stored, once it was processed.",
)

DELIVERY: Final = Key(
    "run.delivery",
    choice("as declared", "exactly once", "at least once", "at most once"),
    "as declared",
    "How often a message counts when something dies, if not as the application declares it.",
)

LATENCY: Final = Key(
    "run.latency",
    choice("as declared", "micro-batch", "realtime", "realtime where possible"),
    "as declared",
    "How messages pass, if not as the application declares it: a batch at a time, or one by one in Spark's "
    "real-time mode.",
)

CHECKPOINT_INTERVAL: Final = Key(
    "run.realtime-checkpoint-interval",
    duration_ms(minimum_ms=5000),
    "1 min",
    "How often a fragment in real-time mode notes how far it is: what came since comes again after a crash.",
)

PROGRESS_INTERVAL: Final = Key(
    "run.progress-interval",
    duration_ms(minimum_ms=100),
    "5 s",
    "How often a run prints its progress when the output is not a terminal.",
)
