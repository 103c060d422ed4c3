"""Keys of the Spark session that an application runs on."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import integer, size_bytes, table, text

MASTER: Final = Key(
    "spark.master",
    text(),
    "local[*]",
    "Where Spark runs: local[*] or local[N] in this process, spark://HOST:PORT, yarn or k8s://URL on "
    "a cluster.",
)

DRIVER_MEMORY: Final = Key(
    "spark.driver-memory",
    size_bytes(minimum_bytes=512 * 2**20),
    "2 GiB",
    "Heap of the Java process that drives Spark; with a local master it also holds the data in flight.",
)

SHUFFLE_PARTITIONS: Final = Key(
    "spark.shuffle-partitions",
    integer(minimum=0, maximum=100_000),
    0,
    "Partitions of every shuffle and its state, fixed at an application's first run; 0 means one per "
    "core. Spark's own default of 200 makes small batches several times slower.",
)

CONF: Final = Key(
    "spark.conf",
    table(),
    {},
    "Further Spark settings, passed on unchanged; they override Drivetrain's choices.",
    is_table=True,
)
