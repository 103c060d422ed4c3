"""Keys of a worker: its slots, its directories, how long it waits for a leader."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import duration_ms, integer, local_path, size_bytes, text

SLOTS: Final = Key(
    "worker.slots",
    integer(minimum=0, maximum=10_000),
    0,
    "Number of slots that the worker offers, each room for one core's work. 0 means one for each core "
    "that the worker may use: those of the machine, or the CPU limit of its container or service.",
)

NAME: Final = Key(
    "worker.name",
    text(empty_allowed=True),
    "",
    "Name of the worker, unique in the cluster. Empty means the machine's host name.",
)

DIRECTORY: Final = Key(
    "worker.directory",
    local_path(),
    ".drivetrain/worker",
    "Where the worker keeps logs, code and the directories of its processes; each worker has its own.",
)

SPARE_EXECUTORS: Final = Key(
    "worker.spare-executors",
    integer(minimum=0, maximum=100),
    1,
    "How many executors the worker starts ahead, with Spark running: the next executor with the same slots "
    "and settings of Spark then begins to work seconds sooner. Each takes some 600 MiB of memory and no "
    "slot.",
)

LEADER_TIMEOUT: Final = Key(
    "worker.leader-timeout",
    duration_ms(minimum_ms=1_000),
    "30 s",
    "How long a worker keeps running without a leading master; after that it ends, with everything "
    "that it started.",
)

DRAIN_TIMEOUT: Final = Key(
    "worker.drain-timeout",
    duration_ms(),
    "30 s",
    "How long a worker that is asked to end (SIGTERM, Ctrl-C) lets its processes finish their batches and "
    "hand over; after that they are killed.",
)

REPORT_INTERVAL: Final = Key(
    "worker.report-interval",
    duration_ms(minimum_ms=100),
    "3 s",
    "How often a worker reports to the leader what it runs, and how busy its machine is.",
)

CODE_TIMEOUT: Final = Key(
    "worker.code-timeout",
    duration_ms(minimum_ms=1_000),
    "60 s",
    "How long a worker tries to fetch an application's code from the masters.",
)

CODE_RETENTION: Final = Key(
    "worker.code-retention",
    duration_ms(),
    "10 min",
    "How long a worker keeps the code of an application after its last process there has ended.",
)

STATE_RETENTION: Final = Key(
    "worker.state-retention",
    duration_ms(minimum_ms=1_000),
    "1 d",
    "How long a worker keeps the directory in which an application worked whose state is in an object store, "
    "after it has ended or moved to another worker.",
)

LOG_SIZE: Final = Key(
    "worker.log-size",
    size_bytes(minimum_bytes=1024),
    "10 MiB",
    "Size at which a log file of a process is closed and the next one begins.",
)

LOG_COUNT: Final = Key(
    "worker.log-count",
    integer(minimum=2),
    5,
    "Number of log files kept per process, the newest.",
)

LOG_RETENTION: Final = Key(
    "worker.log-retention",
    duration_ms(minimum_ms=1_000),
    "7 d",
    "How long the logs of a process are kept after its last line.",
)
