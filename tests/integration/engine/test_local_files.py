"""Local files are written without a process for each, with the permissions that Hadoop gives them."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from drivetrain.spark.session import local_files
from drivetrain.spark.session.cache_directory import make_cache_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODES = [0o000, 0o644, 0o600, 0o755, 0o700, 0o421, 0o124, 0o777, 0o1777]


@pytest.fixture
def class_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A jar in a cache of the test's own: a copy of this machine's, if it has one, as compiling is slow."""
    compiled = local_files.usable_jar()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if compiled is not None:
        make_cache_directory()
        shutil.copy(compiled, local_files.jar_path())
    path = local_files.make_jar()
    assert local_files.usable_jar() == path
    return path


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_the_compiled_class_gives_files_the_modes_that_hadoop_gives_them(
    spark: SparkSession, class_path: Path, tmp_path: Path
) -> None:
    jvm: Any = spark._jvm
    urls = spark._sc._gateway.new_array(jvm.java.net.URL, 1)  # type: ignore[union-attr]
    urls[0] = jvm.java.io.File(str(class_path)).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(urls, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    conf = jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())  # type: ignore[attr-defined]
    ours = loader.loadClass("drivetrain.DirectLocalFileSystem").getConstructors()[0].newInstance(None)
    theirs = jvm.org.apache.hadoop.fs.LocalFileSystem()
    found: list[list[int]] = []
    for name, system in (("ours", ours), ("theirs", theirs)):
        system.initialize(jvm.java.net.URI("file:///"), conf)
        modes = []
        for mode in MODES:
            place = tmp_path / name / f"{mode:o}"
            place.mkdir(parents=True)
            permission = jvm.org.apache.hadoop.fs.permission.FsPermission(f"{mode:04o}")
            path = jvm.org.apache.hadoop.fs.Path(str(place))
            system.create(jvm.org.apache.hadoop.fs.Path(path, "made")).close()
            system.mkdirs(jvm.org.apache.hadoop.fs.Path(path, "folder"), permission)
            (place / "set").touch()
            system.setPermission(jvm.org.apache.hadoop.fs.Path(path, "set"), permission)
            modes += [stat.S_IMODE(os.stat(each).st_mode) for each in sorted(place.iterdir())]
        found.append(modes)
    assert found[0] == found[1]
    assert len(found[0]) == 4 * len(MODES), "a file, its checksum, a folder, a file whose mode was set"


def test_a_jar_stays_when_it_is_made_again_and_is_replaced_when_it_is_damaged(class_path: Path) -> None:
    content, written_ns = class_path.read_bytes(), class_path.stat().st_mtime_ns
    assert local_files.make_jar().stat().st_mtime_ns == written_ns
    class_path.write_bytes(b"half a jar")
    assert local_files.make_jar().read_bytes() == content


def test_a_session_on_this_machine_uses_it_when_it_was_warmed_up(spark: SparkSession) -> None:
    conf: Any = spark._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    local = spark._jvm.org.apache.hadoop.fs.FileSystem.get(spark._jvm.java.net.URI("file:///"), conf)  # type: ignore[union-attr]
    is_used = local.getClass().getName() == "drivetrain.DirectLocalFileSystem"
    assert is_used == (local_files.usable_jar() is not None)
