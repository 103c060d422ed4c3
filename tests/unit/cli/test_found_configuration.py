"""A configuration that someone else has left in the current directory is not read unless it is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drivetrain.cli.arguments import load_config
from drivetrain.config.catalog import cluster
from drivetrain.errors import UserError

MASTERS = "203.0.113.7:7001"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `drivetrain.toml` that names masters, in the current directory."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "drivetrain.toml"
    file.write_text(f'[cluster]\nmasters = "{MASTERS}"\n')
    return file


def masters(file: Path | None = None) -> str:
    return load_config(file, {})[cluster.MASTERS]


def test_a_configuration_that_everybody_can_write_is_refused_unless_it_is_named(found: Path) -> None:
    assert masters() == MASTERS
    found.chmod(0o666)
    with pytest.raises(UserError, match="may be someone else's") as caught:
        masters()
    assert "everybody can write" in str(caught.value.got)
    assert "--config drivetrain.toml" in str(caught.value.remedy)
    assert masters(Path("drivetrain.toml")) == MASTERS


@needs_root
def test_a_configuration_that_another_user_left_here_is_refused(
    found: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert masters() == MASTERS, "root's"
    os.chown(found, 4712, -1)
    with pytest.raises(UserError, match="may be someone else's") as caught:
        masters()
    assert "user 4712" in str(caught.value.got)
    os.chown(found, 4711, -1)
    assert masters() == MASTERS


@needs_root
def test_a_configuration_of_the_owner_of_the_directory_is_read(found: Path) -> None:
    for path in (found, found.parent):
        os.chown(path, 4712, -1)
    assert masters() == MASTERS, "as in a container whose project directory is mounted"
