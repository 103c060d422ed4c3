"""Installs the peers of the field on first use, outside our own environment; `field.toml` pins versions.

A peer in Python gets an environment of its own, `.venv-peers/NAME`; a peer in Java its jars, by the same way
as Spark's Kafka connector (`drivetrain.spark.session.jars`), and its job in `peers_java/` is compiled into
`.venv-peers/java`. Nothing else needs them: a peer that cannot be installed is left out and named.

Called by `field_peers`. `BENCH_PEERS` names another directory than `.venv-peers`.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from drivetrain.errors import DrivetrainError
from drivetrain.spark.session.jars import fetch
from drivetrain.spark.session.java import java_program

SOURCES = Path(__file__).with_name("peers_java")
PINS = Path(__file__).with_name("field.toml")
SHARED = {
    "kafka_streams": ("Meter", "EventReader"),
    "storm": ("Meter", "EventReader", "StormKafka"),
    "gearpump": ("Meter",),
}
"""The sources that a peer's job needs besides its own."""
INSTALL_S = 900


def root() -> Path:
    """Where the peers are kept."""
    return Path(os.environ.get("BENCH_PEERS", ".venv-peers")).absolute()


def python_of(name: str) -> Path:
    """The Python of a peer's environment, whether it is there or not."""
    return root() / name / "bin" / "python"


@functools.cache
def python_missing(name: str) -> str | None:
    """Make a peer's environment if need be; why it is not there, or None."""
    version = _pins()["pypi"][name]
    marker = root() / name / f"installed-{version}"
    if marker.exists():
        return None
    python = python_of(name)
    print(f"installing {name} {version} into {root() / name} …", file=sys.stderr)
    try:
        if not python.exists():
            _quietly([sys.executable, "-m", "venv", str(root() / name)])
        beside = _pins()["beside"].get(name, [])
        _quietly([str(python), "-m", "pip", "install", "--quiet", f"{name}=={version}", *beside])
    except (subprocess.SubprocessError, OSError) as error:
        return f"{name} {version} cannot be installed here: {_last_line(error)}"
    marker.touch()
    return None


@functools.cache
def jars_missing(name: str) -> str | None:
    """Fetch the jars of a peer if need be; why that cannot be, or None."""
    try:
        jars(name)
    except DrivetrainError as error:
        return f"{name} cannot be installed here: {_last_line(error)}"
    return None


@functools.cache
def java_missing(name: str) -> str | None:
    """Fetch the jars of a peer and compile its job if need be; why that cannot be, or None."""
    try:
        path = os.pathsep.join(map(str, jars(name)))
        sources = [
            SOURCES / f"{job_class(name)}.java",
            *(SOURCES / f"{shared}.java" for shared in SHARED[name]),
        ]
        classes = root() / "java" / name
        marker = classes / "compiled"
        newest = max(file.stat().st_mtime for file in (*sources, PINS))
        if marker.exists() and marker.stat().st_mtime >= newest:
            return None
        classes.mkdir(parents=True, exist_ok=True)
        _quietly(
            [_javac(), "-nowarn", "--release", "17", "-cp", path, "-d", str(classes), *map(str, sources)]
        )
    except (DrivetrainError, subprocess.SubprocessError, OSError) as error:
        return f"{name} cannot be installed here: {_last_line(error)}"
    marker.touch()
    return None


def java_command(name: str, heap: str = "2g") -> list[str]:
    """The command that runs a peer's job, but for its arguments."""
    path = os.pathsep.join(map(str, [root() / "java" / name, *jars(name)]))
    return [java_program() or "java", f"-Xmx{heap}", "-XX:+UseParallelGC", "-cp", path, job_class(name)]


def jars(name: str) -> list[Path]:
    """The jars of a peer, fetched the first time."""
    return fetch(_pins()["jars"][name], {})


def job_class(name: str) -> str:
    """The class of a peer's job: `KafkaStreamsJob` for `kafka_streams`."""
    return "".join(map(str.capitalize, name.split("_"))) + "Job"


def _javac() -> str:
    beside = Path(java_program() or "java").with_name("javac")
    return str(beside) if beside.exists() else shutil.which("javac") or "javac"


@functools.cache
def _pins() -> dict[str, Any]:
    return tomllib.loads(PINS.read_text())


def _last_line(error: Exception) -> str:
    if isinstance(error, DrivetrainError):
        return str(error).splitlines()[0]
    told = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
    return told[-1] if told else type(error).__name__


def _quietly(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)
