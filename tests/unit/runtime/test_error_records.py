"""Errors that go to another process, or are stored, have no secrets in them."""

from __future__ import annotations

import pytest

from drivetrain.config.references import resolved
from drivetrain.errors import UserError
from drivetrain.runtime.error_records import error_record
from drivetrain.spark.run.fragment_versions import why_it_failed


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PASSWORD_OF_TEST", "horse-battery")
    return resolved("${PASSWORD_OF_TEST}")


def test_a_record_of_an_error_has_no_secret(secret: str) -> None:
    for error in (UserError("refused", got=f"password {secret}"), ValueError(f"password {secret}")):
        record = error_record(error)
        assert secret not in str(record)
        assert "password ***" in str(record)


def test_why_a_version_has_failed_has_no_secret(secret: str) -> None:
    failed = UserError("refused", where="orders", got=f"password {secret}")
    failed.user_traceback = f'connect("{secret}")'  # type: ignore[attr-defined]
    for error in (failed, ValueError(f"password {secret}")):
        assert secret not in why_it_failed(error)
        assert "password ***" in why_it_failed(error)
