"""A Java process that ends: told in one way, whichever call meets it first."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

from drivetrain.api import Application, sinks, sources
from drivetrain.config import Config
from drivetrain.errors import UnavailableError
from drivetrain.spark.run import embedded
from drivetrain.spark.session.lost_java import is_lost, java_has_ended, java_lost


class Gateway:
    """What PySpark keeps of the process that it started."""

    def __init__(self, proc: subprocess.Popen[bytes]) -> None:
        self.proc = proc


@contextmanager
def java(program: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in the place of Spark's Java process."""
    process = subprocess.Popen([sys.executable, "-c", program])
    monkeypatch.setattr(SparkContext, "_gateway", Gateway(process))
    try:
        yield
    finally:
        process.kill()
        process.wait(10)


def raised_while(first: Exception, second: Exception) -> Exception:
    """`second`, raised while `first` was handled."""
    try:
        try:
            raise first
        except type(first):
            raise second  # noqa: B904 - without a cause is what is tried here
    except type(second) as error:
        return error


LOST = [
    Py4JNetworkError("Answer from Java side is empty"),
    ConnectionRefusedError(111, "Connection refused"),
    raised_while(
        Py4JError("An error occurred while calling o201.isActive"), ConnectionRefusedError(111, "refused")
    ),
    raised_while(Py4JNetworkError("empty"), RuntimeError("what followed")),
]


@pytest.mark.parametrize("error", LOST, ids=repr)
def test_a_call_that_fails_before_java_has_ended_is_told_as_its_end(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with java("import sys, time; time.sleep(0.7); sys.exit(3)", monkeypatch):
        told = java_lost(Config.load(None, {}, {"spark.driver-memory": "512 MiB"}), error)
    assert told is not None
    assert told.what == "Spark's Java process has no memory left, and ended"
    assert told.got == "512 MiB"
    assert "--set spark.driver-memory='1 GiB'" in str(told.remedy)


def test_an_end_for_another_reason_names_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    with java("import sys; sys.exit(134)", monkeypatch):
        told = java_lost(Config.load(None, {}, {}), ConnectionResetError(104, "reset"))
        assert java_has_ended()
        assert is_lost()
    assert told is not None
    assert told.got == "exit status 134"


def test_other_errors_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with java("import time; time.sleep(60)", monkeypatch):
        assert java_lost(Config.load(None, {}, {}), ValueError("of the user's function")) is None
        assert not java_has_ended()


@pytest.mark.parametrize(
    ("status", "said"), [(3, "has no memory left, and ended"), (1, "Java process has ended")]
)
def test_a_run_whose_java_ends_has_that_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, said: str
) -> None:
    def prepare(*_: object, **__: object) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(embedded, "prepare", prepare)
    app = Application("lost")
    app.read(sources.generate(rows=1)).sink(sinks.none())
    config = Config.load(None, {}, {"state.dir": str(tmp_path)})
    with (
        java(f"import sys; sys.exit({status})", monkeypatch),
        pytest.raises(UnavailableError, match=said) as raised,
    ):
        embedded.run(app, config)
    assert isinstance(raised.value.__cause__, Py4JNetworkError)
