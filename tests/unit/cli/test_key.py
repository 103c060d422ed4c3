"""`drivetrain key`: the key of one role, in place of the secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from drivetrain.cli.main import app
from drivetrain.cluster.access.keyring import Keyring

SECRET = "the secret of this cluster"


def test_a_roles_key_is_made_from_the_secret_and_proves_that_role_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRIVETRAIN_SECRET", raising=False)
    file = tmp_path / "secret"
    file.touch(0o600)
    file.write_text(SECRET)
    result = CliRunner().invoke(app, ["key", "client", "--set", f"cluster.secret-file={file}"])
    assert result.exit_code == 0, result.output
    text = result.stdout.strip()
    assert SECRET not in text
    of_masters = Keyring("master", lambda: (SECRET,))
    assert Keyring("client", lambda: (text,)).keys_for("master") == of_masters.keys_for("client")
    assert Keyring("worker", lambda: (text,)).keys_for("master") == ()


def test_without_a_secret_there_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRIVETRAIN_SECRET", raising=False)
    result = CliRunner().invoke(app, ["key", "worker"])
    assert result.exit_code == 2
    assert "there is no secret to make a key from" in result.output
