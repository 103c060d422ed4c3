"""What is found out before Spark is started."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from drivetrain.config import Config
from drivetrain.errors import MissingDependencyError, UnavailableError
from drivetrain.spark.session import java, spark_session, spark_settings
from drivetrain.spark.session.python_launcher import worker_python


def test_a_standalone_master_must_listen_and_one_of_several_will_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        spark_session.require_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(UnavailableError, match="no Spark master listens there") as caught:
        spark_session.require_master(f"spark://127.0.0.1:{port},nonsense")
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "nonsense" in str(caught.value)
    spark_session.require_master("local[2]")
    spark_session.require_master("yarn")


def test_on_a_cluster_the_user_may_say_which_python_runs_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")

    def chosen(**sets: str) -> str:
        spark_session._choose_python(
            Config.load(None, None, {k.replace("__", "."): v for k, v in sets.items()})
        )
        return os.environ["PYSPARK_PYTHON"]

    assert chosen(spark__master="spark://h:7077") == sys.executable
    assert (
        chosen(spark__master="yarn", spark__conf__spark__pyspark__python="./env/bin/python")
        == "./env/bin/python"
    )
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert chosen(spark__master="yarn") == "/opt/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_here_every_python_of_sparks_is_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "/opt/python")
    spark_session._choose_python(Config.load(None, None, {"spark.master": "local[1]"}))
    assert os.environ["PYSPARK_PYTHON"] == worker_python()
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == worker_python()


def test_rules_of_the_optimizer_that_a_user_leaves_out_are_left_out_besides_ours() -> None:
    name = "spark.sql.optimizer.excludedRules"
    ours = spark_settings.settings(Config.load(None, None, {}))[name]
    assert "PropagateEmptyRelation" in ours
    chosen = Config.load(None, None, {f"spark.conf.{name}": "org.example.Rule"})
    assert spark_settings.settings(chosen)[name] == f"{ours},org.example.Rule"


def test_only_a_spark_of_this_process_is_bound_to_this_machine() -> None:
    address = "spark.driver.bindAddress"
    assert (
        spark_settings.settings(Config.load(None, None, {"spark.master": "local[1]"}))[address] == "127.0.0.1"
    )
    assert address not in spark_settings.settings(Config.load(None, None, {"spark.master": "spark://h:7077"}))


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ('openjdk version "11.0.2" 2019-01-15', r"Java is too old(.|\n)*17 or newer(.|\n)*11"),
        (
            "Error: Could not create the Java Virtual Machine.",
            r"does not start(.|\n)*Could not create(.|\n)*JDK_JAVA_OPTIONS",
        ),
        ('Warning: option "x" is old\nopenjdk version "1.8.0_392"', r"too old(.|\n)*8"),
    ],
)
def test_java_is_refused_for_the_reason_that_it_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, message: str
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{printed}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingDependencyError, match=message):
        java.require_java()
    program.write_text(program.read_text().replace(printed, 'Warning: "x"\nopenjdk version "21" 2023-09-19'))
    java.require_java()
