"""What an executor tells of errors, and the configuration it gives Spark."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import pytest
from py4j.protocol import Py4JError

from drivetrain.cluster.executor.executor_config import executor_config
from drivetrain.cluster.executor.failure_views import error_of, is_retryable
from drivetrain.cluster.executor.spark_work import SparkWork
from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.launching import ProcessKind
from drivetrain.config import Config
from drivetrain.config.catalog import spark as keys
from drivetrain.core.channel.channel_log import TrimmedError
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import (
    ConfigError,
    DiskFullError,
    DrivetrainError,
    GraphError,
    InputError,
    InternalError,
    OperatorError,
    UserError,
)
from drivetrain.runtime.error_views import error_view
from drivetrain.runtime.preparation import Preparer
from drivetrain.spark.batch.query_engine import QueryEngine
from drivetrain.spark.run.host import Host

OPERATOR = OperatorError("boom", operator="map (a.py:3)", message="7", user_traceback="Traceback: boom")


@pytest.mark.parametrize(
    ("error", "before", "running"),
    [
        (OPERATOR, True, True),  # the world that it met may be another one next time
        (DiskFullError("full"), True, True),
        (InternalError("bug"), True, True),
        (UserError("the graph has changed"), False, True),  # running, it is what Spark said of one batch
        (GraphError("wrong"), False, False),
        (InputError("missing"), False, False),
        (ConfigError("key"), False, False),
        (TrimmedError("gone"), False, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_another_attempt_could_be_spared_is_retried(
    error: DrivetrainError, before: bool, running: bool
) -> None:
    assert is_retryable(error, running=False) is before
    assert is_retryable(error, running=True) is running


def test_a_view_has_all_fields_and_fits_a_message() -> None:
    view = error_view(OPERATOR)
    assert (view.code, view.what, view.where) == ("operator", "boom", "map (a.py:3)")
    assert view.got == "the message 7"
    assert view.user_traceback == "Traceback: boom"
    long = error_view(
        OperatorError(
            "x" * 1_000_000, operator="f", message=None, user_traceback="Traceback" + "y" * 99_999 + "!"
        )
    )
    assert len(long.what) < 10_000
    assert str(long.user_traceback).endswith("y!"), "the end of a traceback says what was raised"
    assert len(str(long.user_traceback)) < 10_000


def test_a_mistake_of_ours_is_not_told_as_the_users() -> None:
    ours = error_of(KeyError("x"), "fragment f")
    assert type(ours) is InternalError
    assert (ours.what, ours.where) == ("KeyError: 'x'", "fragment f")
    assert type(error_of(Py4JError("the query was refused"), "fragment f")) is UserError
    assert error_of(OPERATOR, "fragment f") is OPERATOR


FILE = """
from drivetrain import Application, sinks, sources
app = Application("early")
app.read(sources.generate(rows=1)).sink(sinks.none())
"""


@pytest.mark.parametrize(("master", "begun"), [("local[1]", ["early"]), ("spark://h:7077", [])])
def test_spark_starts_before_anything_is_requested_where_it_takes_no_cores_of_others(
    tmp_path: Path, master: str, begun: list[str]
) -> None:
    (tmp_path / "a.py").write_text(FILE)
    given = launch(tmp_path, 1, **{"spark.master": master, "state.dir": str(tmp_path / "state")})
    given = msgspec.structs.replace(given, code_directory=str(tmp_path))
    seen: list[str] = []

    def engine(plan: Plan, config: Config) -> QueryEngine:
        seen.append(plan.application)
        return cast("QueryEngine", None)

    work = SparkWork(given, executor_config(given), Preparer("a-1", 1, "by"), Host(engine))
    work.begin_engine()
    assert seen == begun
    assert not (tmp_path / "state").exists(), "it takes no lock"


def launch(tmp_path: Path, slots: int, **config: str) -> LaunchFile:
    return LaunchFile(
        kind=ProcessKind.EXECUTOR, launch_id="l", app_id="a-1", epoch=1, slots=slots, owner="", app_master="",
        spec=ApplicationSpec(name="a", code="", file="a.py"), code_directory="", worker_id="", worker_name="",
        worker="", masters=[], host="127.0.0.1", work_directory=str(tmp_path), config=config,
    )  # fmt: skip


def test_spark_gets_a_core_for_each_slot_unless_the_application_says_where_it_runs(tmp_path: Path) -> None:
    config = executor_config(launch(tmp_path, 3))
    assert config[keys.MASTER] == "local[3]"
    assert config[keys.CONF]["spark.local.dir"] == str(tmp_path / "spark")
    shared = executor_config(launch(tmp_path, 0, **{"app.executor-slots": "2"}))
    assert shared[keys.MASTER] == "local[2]"
    told = executor_config(
        launch(tmp_path, 3, **{"spark.master": "local[7]", "spark.conf.spark.local.dir": "/d"})
    )
    assert told[keys.MASTER] == "local[7]"
    assert told[keys.CONF]["spark.local.dir"] == "/d"
    remote = executor_config(launch(tmp_path, 3, **{"spark.master": "spark://h:7077"}))
    assert remote[keys.MASTER] == "spark://h:7077"
    assert "spark.local.dir" not in remote[keys.CONF]
