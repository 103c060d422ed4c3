"""The secret of a local cluster, found by commands, and the refusal to run without one."""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path

import pytest

from drivetrain.cli.arguments import load_config
from drivetrain.cli.clusters.local_secret import make_secret, needs_secret, require_secret
from drivetrain.cluster.access.secret_files import secrets_of
from drivetrain.config import Config
from drivetrain.config.catalog import cluster
from drivetrain.errors import ConfigError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DRIVETRAIN_SECRET", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(**sets: str) -> Config:
    return Config.load(None, {}, {f"cluster.{name.replace('_', '-')}": value for name, value in sets.items()})


def test_a_secret_is_made_once_for_its_owner_alone(here: Path) -> None:
    file = make_secret(here)
    secret = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(secret.strip()) >= 40
    assert make_secret(here).read_text() == secret
    assert [path.name for path in here.iterdir()] == ["secret"]
    (here / "another").mkdir()
    assert make_secret(here / "another").read_text() != secret
    read = secrets_of(config(secret_file=str(file)))
    assert read is not None
    assert read() == (secret.strip(),)


def test_a_secret_has_its_name_only_once_it_is_synced_and_so_has_the_name(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def synced(descriptor: int) -> None:
        steps.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def linked(aside: Path, path: Path) -> None:
        steps.append(f"{path.name} of {len(aside.read_text())} characters")
        link(aside, path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    make_secret(here)
    assert steps == ["file", "secret of 44 characters", "directory"]


def test_a_secret_that_cannot_be_synced_does_not_exist(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="Input/output error"):
            make_secret(here)
    assert not (here / "secret").exists()
    assert make_secret(here).read_text().strip()


def test_masters_and_workers_need_a_secret_or_leave_to_do_without(
    here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match="a worker needs the shared secret") as caught:
        require_secret(config(), "worker")
    assert "cluster.without-secret=true" in str(caught.value.remedy)
    with caplog.at_level(logging.WARNING):
        require_secret(config(secret_file=str(make_secret(here))), "worker")
        assert caplog.messages == []
        require_secret(config(without_secret="true"), "master")
    assert caplog.messages == [
        "without a secret every user of this machine can run code as the user of this master"
    ]
    monkeypatch.setenv("DRIVETRAIN_SECRET", "a secret that is long enough for anybody")
    assert not needs_secret(config())


def test_commands_find_the_secret_where_they_find_the_masters(here: Path) -> None:
    file = make_secret(here)
    (here / ".drivetrain").mkdir()
    (here / ".drivetrain" / "cluster.toml").write_text(
        f'cluster.masters = "127.0.0.1:7070,127.0.0.1:7071"\ncluster.secret-file = "{file}"\n'
    )
    found = load_config(None, {})
    assert found[cluster.MASTERS] == "127.0.0.1:7070,127.0.0.1:7071"
    assert found[cluster.SECRET_FILE] == str(file)
    same = load_config(None, {"cluster.masters": "127.0.0.1:7071, 127.0.0.1:7070"})
    assert same[cluster.SECRET_FILE] == str(file)
    other = load_config(None, {"cluster.masters": "10.0.0.1:7070"})
    assert other[cluster.SECRET_FILE] == ""
    own = load_config(None, {"cluster.secret-file": "mine"})
    assert (own[cluster.SECRET_FILE], own[cluster.MASTERS]) == ("mine", found[cluster.MASTERS])
    assert load_config(None, {}, finds_local=False)[cluster.SECRET_FILE] == ""
