"""Keys of an application in a cluster: its executors, and its restarts."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import choice, duration_ms, integer, number

EXECUTORS: Final = Key(
    "app.executors",
    integer(minimum=1),
    1,
    "Number of executors of an application, each a process with its own Spark session.",
)

EXECUTOR_SLOTS: Final = Key(
    "app.executor-slots",
    integer(minimum=1),
    1,
    "Slots of one worker that each executor takes; with a local Spark master, also its cores.",
)

PLACEMENT: Final = Key(
    "app.placement",
    choice("spread", "pack", "locality"),
    "spread",
    "How executors are placed: on the emptiest workers, on the fullest that fit, or on preferred "
    "hosts first.",
)

SLOTS_TIMEOUT: Final = Key(
    "app.slots-timeout",
    duration_ms(minimum_ms=1),
    "2 min",
    "How long an application waits for slots before it counts as a failure.",
)

START_TIMEOUT: Final = Key(
    "app.start-timeout",
    duration_ms(minimum_ms=1),
    "1 min",
    "How long an executor may take from its start until it registers; after that it is replaced.",
)

PREPARE_TIMEOUT: Final = Key(
    "app.prepare-timeout",
    duration_ms(minimum_ms=1),
    "10 min",
    "How long an executor may take to start Spark and to check the application, or to record its end.",
)

CANCEL_TIMEOUT: Final = Key(
    "app.cancel-timeout",
    duration_ms(minimum_ms=1),
    "1 min",
    "How long fragments may take to stop at a batch boundary; after that their executors are killed.",
)

LEADER_TIMEOUT: Final = Key(
    "app.leader-timeout",
    duration_ms(minimum_ms=1),
    "10 min",
    "How long an application keeps running without a leading master; after that it stops itself.",
)

RESTART_STRATEGY: Final = Key(
    "restart.strategy",
    choice("none", "fixed-delay", "failure-rate", "exponential"),
    "exponential",
    "When to restart a failed fragment, and after that the job: see the keys of the four strategies.",
)

RESTART_ATTEMPTS: Final = Key(
    "restart.attempts",
    integer(minimum=0),
    10,
    "Restarts of a fragment in a row (failure-rate: failures in restart.interval) before the job "
    "fails; 0 with exponential: no limit.",
)

JOB_ATTEMPTS: Final = Key(
    "restart.job-attempts",
    integer(minimum=0),
    1,
    "Restarts of the whole job before the application fails; 0: none.",
)

RESTART_DELAY: Final = Key(
    "restart.delay", duration_ms(), "1 s", "Delay before a restart; with exponential, before the first one."
)

RESTART_MULTIPLIER: Final = Key(
    "restart.multiplier", number(minimum=1.0), 1.5, "Exponential: factor from one delay to the next."
)

RESTART_MAXIMUM_DELAY: Final = Key(
    "restart.maximum-delay", duration_ms(), "1 min", "Exponential: longest delay."
)

RESTART_RESET_AFTER: Final = Key(
    "restart.reset-after",
    duration_ms(),
    "10 min",
    "Exponential: time without a failure after which counts and delays start again from the beginning.",
)

RESTART_JITTER: Final = Key(
    "restart.jitter",
    number(minimum=0.0, maximum=1.0),
    0.1,
    "Exponential: random share by which each delay varies.",
)

RESTART_INTERVAL: Final = Key(
    "restart.interval",
    duration_ms(minimum_ms=1),
    "1 min",
    "Failure rate: the interval in which restart.attempts failures are permitted.",
)
