"""Where the archive of Java's classes is looked for, and when it is used."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
import pytest

from drivetrain.spark.session import class_archive
from drivetrain.spark.session.class_archive import archive_path, java_options


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return program


def made(path: Path | None) -> Path:
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"an archive")
    return path


def test_an_archive_is_used_when_it_is_there(java: Path) -> None:
    assert java_options() == ""
    path = made(archive_path())
    assert f"-XX:SharedArchiveFile={path}" in java_options()
    assert "-Xshare:auto" in java_options(), "or Java would not start without a fitting one"


def test_another_java_has_another_archive(java: Path) -> None:
    before = archive_path()
    java.unlink()
    java.write_text("newer")
    java.touch()
    os.utime(java, (1, 1))
    assert archive_path() != before


def test_the_way_to_pyspark_does_not_matter(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = archive_path()
    installed = Path(pyspark.__file__).parent
    (tmp_path / "environment").symlink_to(installed.parent)
    monkeypatch.setattr(class_archive, "spark_folder", lambda: tmp_path / "environment" / installed.name)
    assert archive_path() == before


def test_without_java_there_is_none(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java.unlink()
    assert archive_path() is None
    assert java_options() == ""


def test_a_path_that_java_options_cannot_carry_is_not_used(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    made(archive_path())
    assert java_options() == ""
