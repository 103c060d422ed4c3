"""Keys of running an application: where it stores its state and how it reads its input."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import (
    choice,
    duration_ms,
    integer,
    local_path,
    number,
    path_or_store,
    size_bytes,
)
from drivetrain.private_files import Writers

STATE_DIR: Final = Key(
    "state.dir",
    path_or_store(),
    ".drivetrain",
    "Directory of checkpoints, channels and state, one folder per application. Without it every "
    "application starts over. It may be a place in an object store or in HDFS (s3://bucket/name, "
    "gs://bucket/name, abfs://container/name, hdfs://host:port/name); a cluster then runs the "
    "application on one worker.",
)

WORK_DIR: Final = Key(
    "state.work-dir",
    local_path(),
    "user-cache",
    "Directory of this machine in which applications work whose state.dir is an object store or HDFS; it may "
    "be lost. By default drivetrain/states in the user's cache; in a cluster, states in the worker's "
    "directory.",
)

WRITERS: Final = Key(
    "state.writers",
    choice(*Writers),
    Writers.OWNER.value,
    "Who else may write to states and savepoints, which contain code that runs when they are loaded: "
    "only the owner (you, or root), also the group, or anyone (no check).",
)

MAX_BATCH_BYTES: Final = Key(
    "run.max-batch-bytes",
    size_bytes(minimum_bytes=1024),
    "512 MiB",
    "Most bytes that a source adds to one batch, which keeps memory bounded whatever the backlog.",
)

MAX_BATCH_ROWS: Final = Key(
    "run.max-batch-rows",
    integer(minimum=0),
    0,
    "Most messages that a source adds to one batch; 0 means that only run.max-batch-bytes limits it. "
    "Files are always limited by bytes only.",
)

MIN_BATCH_BYTES: Final = Key(
    "run.min-batch-bytes",
    size_bytes(minimum_bytes=1),
    "1 MiB",
    "Bytes that a source may add to one batch even when batches are slow; see run.batch-target.",
)

BATCH_TARGET: Final = Key(
    "run.batch-target",
    duration_ms(minimum_ms=1),
    "10 s",
    "Longest desired duration of a batch: after a longer one, sources make the next batch smaller. "
    "Backlogs are read in batches as large as that allows.",
)

HISTORY_SHARE: Final = Key(
    "run.history-share",
    number(minimum=0.01, maximum=1.0),
    0.5,
    "Largest share of the time in which a change with --history reads former messages; then it pauses.",
)

TRIAL_WAIT: Final = Key(
    "run.trial-wait",
    duration_ms(minimum_ms=0),
    "30 s",
    "How long the trial of a change waits for messages in a fragment without any; then it ends without them.",
)

KEEP_BYTES: Final = Key(
    "replay.keep-bytes",
    size_bytes(minimum_bytes=0),
    "256 MiB",
    "Bytes of processed messages that each one-pass source keeps for replays.",
)

KEEP_AGE: Final = Key(
    "replay.keep-age",
    duration_ms(minimum_ms=0),
    "1 d",
    "How long a one-pass source keeps processed messages for replays, counted from the time they were "
    "stored.",
)

KEEP_LETTERS_BYTES: Final = Key(
    "dead-letters.keep-bytes",
    size_bytes(minimum_bytes=0),
    "256 MiB",
    "Bytes of dead letters that each fragment keeps on disk; the oldest are dropped, and counted.",
)

KEEP_LETTERS_AGE: Final = Key(
    "dead-letters.keep-age",
    duration_ms(minimum_ms=0),
    "30 d",
    "How long a dead letter is kept; each file of dead letters covers an eighth of that.",
)

LATE_SAMPLES: Final = Key(
    "late-messages.samples",
    integer(minimum=0, maximum=1_000),
    100,
    "Late messages that each fragment keeps as samples, the newest; 0: none, and no batch is read again for "
    "them.",
)

DELIVERY: Final = Key(
    "run.delivery",
    choice("as declared", "exactly once", "at least once", "at most once"),
    "as declared",
    "Overrides the delivery guarantee that the application declares.",
)

LATENCY: Final = Key(
    "run.latency",
    choice("as declared", "micro-batch", "realtime", "realtime where possible"),
    "as declared",
    "Overrides the application's choice between micro-batches and Spark's real-time mode.",
)

CHECKPOINT_INTERVAL: Final = Key(
    "run.realtime-checkpoint-interval",
    duration_ms(minimum_ms=5000),
    "1 min",
    "How often a fragment in real-time mode records its progress: after a crash, later messages are "
    "processed again.",
)

PROGRESS_INTERVAL: Final = Key(
    "run.progress-interval",
    duration_ms(minimum_ms=100),
    "5 s",
    "How often a run prints its progress when the output is not a terminal.",
)
