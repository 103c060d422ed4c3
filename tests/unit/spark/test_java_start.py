"""How Java is started without Spark's scripts, and when they have to do it; see also `test_session`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pyspark.java_gateway
import pytest

from drivetrain.config import Config
from drivetrain.errors import UnavailableError
from drivetrain.spark.session import installed_spark, java_start
from drivetrain.spark.session.java_start import begin, direct_command, gateway

CONFIG = Config.load(None, None, {})
SAYS_ITS_PORT = """#!/usr/bin/python3
import os, sys
place = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
with open(place + "~", "wb") as file:
    file.write((4321).to_bytes(4, "big") + (6).to_bytes(4, "big") + b"secret")
os.rename(place + "~", place)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _without_settings_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("SPARK_", "PYSPARK_")):
            monkeypatch.delenv(name)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program in place of Java, which says its port at once."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(SAYS_ITS_PORT)
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")
    monkeypatch.setattr(java_start, "_begun", None)
    yield program
    if java_start._begun is not None:
        java_start._end(java_start._begun)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The ports and secrets that PySpark connects with."""
    seen: list[tuple[str, str]] = []

    def connect() -> Any:
        seen.append((os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]))
        return SimpleNamespace(proc=None)

    monkeypatch.setattr(pyspark.java_gateway, "launch_gateway", connect)
    return seen


def test_pyspark_is_found_without_importing_it() -> None:
    assert installed_spark.spark_folder() == Path(pyspark.__file__).parent
    assert installed_spark.spark_version() == pyspark.__version__


@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_the_command_is_the_one_that_sparks_scripts_would_find_out() -> None:
    command = direct_command(CONFIG)
    assert command is not None
    settings = java_start.settings(CONFIG)
    given = {name: settings[name] for name in settings if name.startswith("spark.driver.")}
    home = installed_spark.spark_folder()
    asked = subprocess.run(
        [
            *(command[0], "-Xmx128m", "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main"),
            "org.apache.spark.deploy.SparkSubmit",
            *(part for name, value in given.items() for part in ("--conf", f"{name}={value}")),
            "pyspark-shell",
        ],
        env={**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    theirs = [part for part in asked.stdout.strip("\n\0").split("\0") if part]
    ours = command[:-1]
    jars = os.pathsep.join(["", *map(str, java_start._connector_at_hand(CONFIG))]).rstrip(os.pathsep)
    assert ours[2].removesuffix(jars) == theirs[2]
    assert list(ours[3:]) == theirs[3 : theirs.index("org.apache.spark.deploy.SparkSubmit")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.master", "spark://h:7077"),
        ("spark.conf.spark.jars", "/a.jar"),
        ("spark.conf.spark.jars.packages", "org.example:a:1"),
        ("spark.conf.spark.driver.extraJavaOptions", "-Da=b"),
        ("spark.conf.spark.submit.pyFiles", "a.py"),
    ],
)
def test_settings_that_sparks_scripts_act_on_are_left_to_them(name: str, value: str) -> None:
    assert direct_command(CONFIG) is not None
    assert direct_command(Config.load(None, None, {name: value})) is None


@pytest.mark.parametrize("name", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME"])
def test_variables_that_sparks_scripts_read_are_left_to_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "/elsewhere")
    assert direct_command(CONFIG) is None


def test_java_that_was_begun_is_connected(java: Path, connections: list[tuple[str, str]]) -> None:
    begin(CONFIG)
    begun = java_start._begun
    assert begun is not None
    begin(CONFIG)
    assert java_start._begun is begun, "one is enough"
    assert os.environ["PYSPARK_PYTHON"], "Java reads it when it starts"
    command = direct_command(CONFIG)
    assert command is not None
    connected = gateway(command)
    assert connections == [("4321", "secret")]
    assert connected.proc.pid == begun.process.pid
    assert "PYSPARK_GATEWAY_SECRET" not in os.environ
    assert not begun.port_file.parent.exists()
    connected.proc.stdin.close()
    connected.proc.wait(30)


@pytest.mark.parametrize("changed", ["environment", "command", "directory"])
def test_java_that_does_not_fit_any_more_is_replaced(
    java: Path,
    connections: list[tuple[str, str]],
    changed: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    begin(CONFIG)
    begun, config = java_start._begun, CONFIG
    assert begun is not None
    if changed == "environment":  # by the application's file, for its functions
        monkeypatch.setenv("WHERE_A_MODEL_IS", "/models")
    elif changed == "directory":
        monkeypatch.chdir(tmp_path)
    else:
        config = Config.load(None, None, {"spark.driver-memory": "777 MiB"})
    command = direct_command(config)
    assert command is not None
    connected = gateway(command)
    assert connected.proc.pid != begun.process.pid
    assert begun.process.poll() is not None
    connected.proc.stdin.close()
    connected.proc.wait(30)


def test_java_that_ends_at_once_is_no_reason_to_wait(java: Path, connections: list[tuple[str, str]]) -> None:
    java.write_text("#!/bin/sh\nexit 7\n")
    command = direct_command(CONFIG)
    assert command is not None
    with pytest.raises(UnavailableError, match="exit status 7"):
        gateway(command)
    assert not connections


def test_java_ends_with_this_process(java: Path, tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    script = (
        "import os; from drivetrain.config import Config; from drivetrain.spark.session import java_start\n"
        "java_start.begin(Config.load(None, None, {}))\n"
        f"open({str(noted)!r}, 'w').write(str(java_start._begun.process.pid)); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    pid = int(noted.read_text())
    end_s = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end_s:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pid}")
