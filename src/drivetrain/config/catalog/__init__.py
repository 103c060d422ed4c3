"""Every configuration key, by topic."""

from drivetrain.config.catalog import (
    actor,
    application,
    channel,
    checkpoint,
    client,
    clock,
    cluster,
    console,
    kafka,
    log,
    master,
    run,
    s3,
    spark,
    worker,
)
from drivetrain.config.catalog.collection import collect_keys

ALL_KEYS = collect_keys(
    spark,
    run,
    channel,
    clock,
    checkpoint,
    kafka,
    s3,
    cluster,
    application,
    client,
    master,
    worker,
    console,
    log,
    actor,
)

__all__ = [
    "ALL_KEYS",
    "actor",
    "application",
    "channel",
    "checkpoint",
    "client",
    "clock",
    "cluster",
    "console",
    "kafka",
    "log",
    "master",
    "run",
    "s3",
    "spark",
    "worker",
]
