"""Keys of running an application: where it keeps its state and how it takes its input."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import duration_ms, integer, local_path, size_bytes

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
    "The most messages that a source hands to one batch; 0 means that only run.max-batch-bytes limits it.",
)

PROGRESS_INTERVAL: Final = Key(
    "run.progress-interval",
    duration_ms(minimum_ms=100),
    "5 s",
    "How often a run prints its progress when the output is not a terminal.",
)
