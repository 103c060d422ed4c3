"""The configuration of an executor's application, found before anything of Spark is imported.

Called by `python -m drivetrain.cluster.executor` and by spare executors.
"""

from __future__ import annotations

from pathlib import Path

from drivetrain.cluster.launch_file import LaunchFile, SpareFile
from drivetrain.config import Config
from drivetrain.config.catalog import application as keys
from drivetrain.config.catalog import spark as spark_keys


def executor_config(launch: LaunchFile | SpareFile) -> Config:
    """The application's configuration for this executor; by default Spark is local, with a core per slot."""
    sets = dict(launch.config)
    config = Config.load(None, None, sets)
    master = config[spark_keys.MASTER]
    if master == spark_keys.MASTER.default_value:
        # Its own slots, or its share of those that the application master holds for all.
        master = sets[spark_keys.MASTER.name] = f"local[{launch.slots or config[keys.EXECUTOR_SLOTS]}]"
    own = f"{spark_keys.CONF.name}.spark.local.dir"
    if master.startswith("local") and own not in sets:
        sets[own] = str(Path(launch.work_directory) / "spark")  # in a directory that is always deleted
    return Config.load(None, None, sets)
