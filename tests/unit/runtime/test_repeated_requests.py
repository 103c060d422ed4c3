"""Requests to a store that does not answer: tried again, logged once, an error in the end."""

from __future__ import annotations

import logging

import pytest

from drivetrain.errors import UnavailableError
from drivetrain.runtime.objects import repeated_requests
from drivetrain.runtime.objects.repeated_requests import answered


def unavailable(error: Exception) -> UnavailableError:
    return UnavailableError("the store does not answer", where="s3://lake", got=f"GET: {error}")


class Store:
    """Answers after some failures."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def get(self) -> str:
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("refused")
        return "content"


def asked(store: Store, retry_s: float) -> str:
    return answered(store.get, retry_s, (OSError,), lambda _error: None, unavailable)


def test_one_warning_says_what_a_process_waits_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(repeated_requests, "PATIENCE_S", 0.1)
    with caplog.at_level(logging.WARNING):
        assert asked(Store(4), 20.0) == "content"
    (warning,) = caplog.messages
    assert warning.startswith("s3://lake: the store does not answer (GET: refused); it is asked for ")


def test_a_short_failure_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert asked(Store(2), 20.0) == "content"
    assert not caplog.messages


def test_the_error_comes_when_the_time_is_over() -> None:
    with pytest.raises(UnavailableError, match="the store does not answer"):
        asked(Store(100), 0.2)
