"""Spark that is started before it is known which application it works for.

Problem: what an executor waits for at its start is Spark: its Java process, its context, and the first batch,
for which Java loads classes and native libraries. None of it depends on the application, except for Spark's
settings, and for the environment and the directory of the Java process.

Design: `StartedAhead` starts Spark with settings that are expected, and runs a small application. An
application that turns out to have other settings, or whose file changes environment variables, does not fit,
and its process starts over. What always differs is set afterwards: the folder from which Spark's Python
processes import the application, and the directory in which they and Hadoop resolve relative paths.

Invariants:

1. An application that fits gets what it would get from a Spark started for it.
2. Nothing of what ran ahead is left but what Java and Python have loaded.

Called by spare executors.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from drivetrain.config import Config
from drivetrain.config.catalog import run as state_keys
from drivetrain.config.catalog import spark as keys
from drivetrain.core.job.run_progress import QuietListener
from drivetrain.core.plan.plan import Plan
from drivetrain.spark.run import embedded
from drivetrain.spark.run.warm_up_application import small_application
from drivetrain.spark.session import java_start
from drivetrain.spark.session.java_classes import java_class
from drivetrain.spark.session.kafka_connector import connector_jars, uses_kafka
from drivetrain.spark.session.lost_java import java_has_ended
from drivetrain.spark.session.python_launcher import DIRECTORY_VARIABLE
from drivetrain.spark.session.spark_session import session
from drivetrain.spark.session.spark_settings import settings

_PATH: Final = "PYTHONPATH"


class StartedAhead:
    """Spark in this process, started with `config`; raises what `session` raises.

    It does nothing, and no application fits, where Java cannot be started directly.
    """

    def __init__(self, config: Config) -> None:
        self._settings: Final = _settings_of_spark(config)
        self._kind: Final = _kind(config)
        java_start.begin(config)
        self._spark: Final = session(config) if self._kind is not None else None
        self._environment: Final = dict(os.environ)

    def warm_up(self, is_wanted: Callable[[], bool]) -> None:
        """Run a small application to its end, or until `is_wanted` says no."""
        if self._spark is None:
            return
        with tempfile.TemporaryDirectory(prefix="drivetrain-ahead-") as scratch:
            sets = {**self._settings, state_keys.STATE_DIR.name: f"{scratch}/state"}
            config = Config.load(None, {}, sets)
            embedded.run(small_application(Path(scratch)), config, _Until(is_wanted))

    def obstacle(self, config: Config, plan: Plan) -> str | None:
        """Why an application with this configuration and plan, which has been loaded, may not work here.

        None if it may.
        """
        if self._kind is None or not java_start.is_direct():
            return "Spark's scripts have to start Java"
        if java_has_ended():
            return "its Java process has ended meanwhile"
        if self._kind != _kind(config):
            return "its settings of Spark are others"
        if variables := self._changed() - {_PATH}:
            return f"environment variables have changed: {', '.join(sorted(variables))}"
        if uses_kafka(plan) and not connector_jars(config, fetch=False):
            return "it needs Kafka's connector"
        return None

    def enter(self) -> None:
        """Tell Spark the import path and the directory of this process; they are others than at its start."""
        assert self._spark is not None
        directory = os.getcwd()
        environment: dict[str, str] = self._spark.sparkContext.environment
        environment[DIRECTORY_VARIABLE] = directory
        if _PATH in os.environ:
            environment[_PATH] = os.environ[_PATH]
        jvm: Any = self._spark._jvm
        path_class = java_class(jvm, "org.apache.hadoop.fs.Path")
        files = java_class(jvm, "org.apache.hadoop.fs.FileSystem")
        local = files.getLocal(self._spark.sparkContext._jsc.hadoopConfiguration())
        local.setWorkingDirectory(path_class(directory))

    def _changed(self) -> set[str]:
        """The variables of this process that have changed since Spark started."""
        before, now = self._environment, dict(os.environ)
        return {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}


def _settings_of_spark(config: Config) -> dict[str, str]:
    """The settings of Spark as a user writes them, without those of an application."""
    return {
        setting.key.name: setting.key.parse.show(setting.value)
        for setting in config
        if setting.place != "default" and setting.key.name.startswith("spark.")
    }


def _kind(config: Config) -> tuple[str, Mapping[str, str], tuple[str, ...]] | None:
    """What two applications must have in common to be able to use one Spark."""
    command = java_start.direct_command(config)
    return None if command is None else (config[keys.MASTER], dict(settings(config)), command)


class _Until(QuietListener):
    """Stops a run when it is not wanted any more."""

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self._is_wanted: Final = is_wanted

    def stop_requested(self) -> bool:
        """Whether something else is to be done now."""
        return not self._is_wanted()
