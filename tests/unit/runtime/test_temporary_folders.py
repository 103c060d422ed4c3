"""Temporary folders: removed with their process, by the next one when it was killed, and never before."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from drivetrain.runtime.temporary_folders import make_temporary_folder, remove_left_folders

OWNER = """
import sys
from drivetrain.runtime.temporary_folders import make_temporary_folder
print(make_temporary_folder("folder-test-"), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def start_owner(temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_stays(temporary: Path) -> None:
    killed, left = start_owner(temporary)
    living, used = start_owner(temporary)
    ended, gone = start_owner(temporary)
    ended.communicate()
    killed.kill()
    killed.communicate()
    try:
        assert (left.is_dir(), used.is_dir(), gone.exists()) == (True, True, False)
        own = make_temporary_folder("folder-test-")
        assert (left.exists(), used.is_dir(), own.is_dir()) == (False, True, True)
        assert remove_left_folders("folder-test-") == []
        assert own.stat().st_mode & 0o777 == 0o700
    finally:
        living.communicate()
    assert not used.exists()


def test_a_folder_that_is_being_made_has_an_hour(temporary: Path) -> None:
    young, old = temporary / "folder-test-young", temporary / "folder-test-old"
    young.mkdir()
    old.mkdir()
    before_s = time.time() - 4_000
    os.utime(old, (before_s, before_s))
    assert remove_left_folders("folder-test-") == [old]
    assert young.is_dir()


def test_links_and_files_are_left_alone(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "owner").touch()
    (temporary / "folder-test-link").symlink_to(elsewhere)
    (temporary / "folder-test-file").touch()
    assert remove_left_folders("folder-test-") == []
    assert (elsewhere / "owner").exists()
