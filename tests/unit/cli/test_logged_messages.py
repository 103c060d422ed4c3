"""What `Stream.log` logs is seen on standard error, once, and py4j's stacks never."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fake_engine import FakeEngine

MESSAGES = logging.getLogger("drivetrain.messages")
CALLBACKS = logging.getLogger("py4j.clientserver")


def log_both(_: object) -> None:
    MESSAGES.info("%s %s", "seen", {"n": 1})
    CALLBACKS.error("There was an exception while executing the Python Proxy on the Python Side.")


def unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like a process of its own: pytest's handlers, which it adds to each test, would count as configured."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_logged_messages_appear_between_the_lines_of_progress(
    engine: FakeEngine, application_file: Path, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    unconfigured(monkeypatch)
    engine.during = log_both
    result = command("run", "count.py")
    assert result.exit_code == 0
    lines = result.stderr.splitlines()
    assert lines.index("seen {'n': 1}") < next(i for i, line in enumerate(lines) if "finished" in line)
    assert "Python Proxy" not in result.stderr


def test_an_application_that_configures_logging_gets_each_message_once_and_its_own_way(
    engine: FakeEngine, application_file: Path, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    unconfigured(monkeypatch)
    heard: list[str] = []

    class Own(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logging.getLogger().addHandler(Own())
    engine.during = log_both
    result = command("run", "count.py")
    assert heard == ["seen {'n': 1}"]
    assert "seen" not in result.stderr


def test_the_process_logs_afterwards_as_it_did_before(
    engine: FakeEngine, application_file: Path, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    unconfigured(monkeypatch)
    engine.during = log_both
    before = (MESSAGES.level, list(MESSAGES.handlers), logging.getLogger("py4j").level)
    command("run", "count.py")
    assert (MESSAGES.level, list(MESSAGES.handlers), logging.getLogger("py4j").level) == before
