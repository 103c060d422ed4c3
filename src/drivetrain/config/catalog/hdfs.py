"""Keys of HDFS: how its name node is found and how long it may take; the place itself is in each URI."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import duration_ms, text

CONFIG_DIR: Final = Key(
    "hdfs.config-dir",
    text(),
    "environment",
    "Directory with core-site.xml and hdfs-site.xml, which say where the name nodes of a name service are; "
    "`environment` means HADOOP_CONF_DIR, else HADOOP_HOME/etc/hadoop. A place with a port needs none.",
)

TIMEOUT: Final = Key(
    "hdfs.timeout",
    duration_ms(minimum_ms=100),
    "30 s",
    "How long one request may take before it is tried again; one with content may take longer, by a second "
    "for each 4 MiB.",
)

RETRY_FOR: Final = Key(
    "hdfs.retry-for",
    duration_ms(minimum_ms=0),
    "2 min",
    "How long requests that HDFS does not answer, or refuses in safe mode, are tried again before the "
    "application fails.",
)
