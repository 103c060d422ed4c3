"""When sessions use the file system that starts no process for a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drivetrain.spark.session.class_archive import archive_path
from drivetrain.spark.session.local_files import jar_path, spark_settings, usable_jar

CLASS_PATH, FILE_SYSTEM = "spark.driver.extraClassPath", "spark.hadoop.fs.file.impl"
EXTENSIONS = "spark.sql.extensions"
RULES = "drivetrain.AggregateBeforeWindows,drivetrain.ForgetJoinedLater,drivetrain.SplitAtCharacters"


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A jar where sessions look for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = jar_path()
    path.parent.mkdir()
    path.write_bytes(b"a jar")
    path.chmod(0o600)
    return path


def test_a_local_session_uses_the_jar(jar: Path) -> None:
    assert spark_settings("local[2]", {}) == {
        CLASS_PATH: str(jar),
        FILE_SYSTEM: "drivetrain.DirectLocalFileSystem",
        EXTENSIONS: RULES,
    }


def test_without_a_jar_hadoops_file_system_stays(jar: Path) -> None:
    jar.unlink()
    assert spark_settings("local[2]", {}) == {}


def test_executors_of_a_spark_cluster_do_not_have_the_jar(jar: Path) -> None:
    assert spark_settings("spark://host:7077", {}) == {}


def test_the_users_class_path_file_system_and_extensions_stay(jar: Path) -> None:
    assert spark_settings("local[2]", {CLASS_PATH: "/own.jar"})[CLASS_PATH] == f"{jar}:/own.jar"
    assert spark_settings("local[2]", {EXTENSIONS: "own.Rules"})[EXTENSIONS] == f"own.Rules,{RULES}"
    assert spark_settings("local[2]", {FILE_SYSTEM: "own.FileSystem"}) == {}


def test_a_jar_that_others_can_write_is_not_used(jar: Path) -> None:
    jar.chmod(0o666)
    assert usable_jar() is None
    assert spark_settings("local[2]", {}) == {}


def test_a_jar_in_a_directory_that_others_can_write_is_not_used(jar: Path) -> None:
    jar.parent.chmod(0o777)
    assert usable_jar() is None


def test_an_archive_of_classes_belongs_to_a_class_path(jar: Path) -> None:
    with_jar = archive_path()
    jar.unlink()
    assert archive_path() != with_jar


def test_an_archive_of_classes_belongs_to_the_jar_as_it_was_written(jar: Path) -> None:
    before = archive_path()
    os.utime(jar, (1, 1))
    assert archive_path() != before, "Java would not take it"
