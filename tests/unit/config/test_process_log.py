"""The log in JSON: one object a line, and no secrets in it."""

from __future__ import annotations

import json
import logging

import pytest

from drivetrain.config import Config
from drivetrain.config.process_log import JsonFormatter, log_to_standard_error
from drivetrain.config.references import resolved


def _entry(message: str, *arguments: object, failed: bool = False) -> str:
    error = ValueError(message) if failed else None
    caught = None if error is None else (ValueError, error, None)
    record = logging.LogRecord("drivetrain.worker", logging.WARNING, __file__, 1, message, arguments, caught)
    return JsonFormatter({"process": "worker"}).format(record)


def test_an_entry_is_an_object_with_its_fields() -> None:
    entry = json.loads(_entry("launched %s", "app-1"))
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "WARNING",
        "logger": "drivetrain.worker",
        "process": "worker",
        "message": "launched app-1",
    }


@pytest.mark.parametrize("text", ["two\nlines", "\x1b]0;x\x07", "\u2028 \u202e", "\ud800", 'quotes "'])
def test_an_entry_is_one_line_whatever_it_says(text: str) -> None:
    line = _entry("%s", text)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["message"] == text


def test_secrets_are_removed_from_the_message_and_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_TEST_PASSWORD", "open sesame 7")
    resolved("${LOG_TEST_PASSWORD}")
    line = _entry("no access with open sesame 7", failed=True)
    assert "sesame" not in line
    assert "ValueError: no access with ***" in json.loads(line)["traceback"]


def test_the_format_of_the_configuration_is_that_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    log_to_standard_error(Config.load(None, {}, {"log.format": "json"}), process="master")
    logging.getLogger("drivetrain.test").warning("one\ntwo")
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert json.loads(line)["process"] == "master"
