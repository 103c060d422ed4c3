"""Keys of checkpoints of the whole application."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import choice, duration_ms, text

MODE: Final = Key(
    "checkpoint.mode",
    choice("auto", "on", "off"),
    "auto",
    'Whether the application takes periodic checkpoints: "on", "off", or "auto", which means if a '
    "sink needs them. With checkpoints, all sinks publish together. A savepoint works in every mode.",
)

INTERVAL: Final = Key(
    "checkpoint.interval",
    duration_ms(minimum_ms=100),
    "1 s",
    "Time from the start of one checkpoint to the start of the next; a slower checkpoint delays the next.",
)

TIMEOUT: Final = Key(
    "checkpoint.timeout",
    duration_ms(minimum_ms=1),
    "30 s",
    "How long one step of a checkpoint may take before the checkpoint is rolled back and tried again.",
)

COPY_TO: Final = Key(
    "checkpoint.copy-to",
    text(),
    "nowhere",
    "Place in an object store or in HDFS (s3://bucket/name, gs://bucket/name, abfs://container/name, "
    "hdfs://host:port/name) to which each checkpoint is copied before its results are published; if the "
    "machine is lost, the application continues from there on another one.",
)
