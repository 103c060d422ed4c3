"""Keys of an application in a cluster: its executors, and when what failed starts again."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import choice, duration_ms, integer, number

EXECUTORS: Final = Key(
    "app.executors",
    integer(minimum=1),
    1,
    "How many executors an application has, each a process with its own Spark session.",
)

EXECUTOR_SLOTS: Final = Key(
    "app.executor-slots",
    integer(minimum=1),
    1,
    "How many slots of one worker each executor takes; with a local Spark master, its cores.",
)

PLACEMENT: Final = Key(
    "app.placement",
    choice("spread", "pack", "locality"),
    "spread",
    "Which workers executors go to: the emptiest, the fullest that fits, or preferred hosts first.",
)

SLOTS_TIMEOUT: Final = Key(
    "app.slots-timeout",
    duration_ms(minimum_ms=1),
    "2 min",
    "How long an application waits for slots before that counts as a failure.",
)

START_TIMEOUT: Final = Key(
    "app.start-timeout",
    duration_ms(minimum_ms=1),
    "1 min",
    "How long an executor may take from its start until it registers; it is replaced then.",
)

PREPARE_TIMEOUT: Final = Key(
    "app.prepare-timeout",
    duration_ms(minimum_ms=1),
    "10 min",
    "How long an executor may take to start Spark and to check the application, or to note its end.",
)

CANCEL_TIMEOUT: Final = Key(
    "app.cancel-timeout",
    duration_ms(minimum_ms=1),
    "1 min",
    "How long fragments may take to stop at a batch boundary; their executors are killed then.",
)

LEADER_TIMEOUT: Final = Key(
    "app.leader-timeout",
    duration_ms(minimum_ms=1),
    "10 min",
    "How long an application goes on without a leading master; then it stops itself.",
)

RESTART_STRATEGY: Final = Key(
    "restart.strategy",
    choice("none", "fixed-delay", "failure-rate", "exponential"),
    "exponential",
    "When a failed fragment starts again, and the job after it: see the four strategies' keys.",
)

RESTART_ATTEMPTS: Final = Key(
    "restart.attempts",
    integer(minimum=0),
    10,
    "Restarts of a fragment in a row (failure-rate: failures in restart.interval) before the job fails; "
    "0 with exponential: without end.",
)

JOB_ATTEMPTS: Final = Key(
    "restart.job-attempts",
    integer(minimum=0),
    1,
    "Restarts of the whole job before the application fails; 0: none.",
)

RESTART_DELAY: Final = Key(
    "restart.delay", duration_ms(), "1 s", "The delay before a restart; with exponential the first one."
)

RESTART_MULTIPLIER: Final = Key(
    "restart.multiplier", number(minimum=1.0), 1.5, "Exponential: by how much each delay exceeds the last."
)

RESTART_MAXIMUM_DELAY: Final = Key(
    "restart.maximum-delay", duration_ms(), "1 min", "Exponential: the longest delay."
)

RESTART_RESET_AFTER: Final = Key(
    "restart.reset-after",
    duration_ms(),
    "10 min",
    "Exponential: after so long without a failure, counts and delays begin anew.",
)

RESTART_JITTER: Final = Key(
    "restart.jitter",
    number(minimum=0.0, maximum=1.0),
    0.1,
    "Exponential: the share of a delay by which it is moved at random.",
)

RESTART_INTERVAL: Final = Key(
    "restart.interval",
    duration_ms(minimum_ms=1),
    "1 min",
    "Failure rate: the interval in which restart.attempts failures are permitted.",
)
