"""Who gets at what Drivetrain keeps, and that what others can write is not loaded."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.actor.disk import DirectoryDisk
from drivetrain.cli.arguments import LOCAL_CLUSTER_FILE, load_config
from drivetrain.cluster.worker.launch_records import LaunchRecord, LaunchRecords
from drivetrain.cluster.worker.worker_logs import WorkerLogs
from drivetrain.code.cache import CodeCache
from drivetrain.config.catalog.cluster import MASTERS
from drivetrain.errors import UserError
from drivetrain.private_files import Writers, make_private_directory, private, require_trusted
from drivetrain.runtime.checkpoints.savepoint_manifest import SavepointError
from drivetrain.runtime.durable_file import DurableFile
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.checkpoints.from_savepoint import OpenedSavepoint
from drivetrain.spark.session import class_archive, jars, local_files
from drivetrain.spark.session.cache_directory import make_cache_directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Modes are ours, not those of a careful umask."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def foreign_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name="staff", gr_mem=["me", "you"]))


def test_directories_are_made_for_their_owner_and_closed_to_readers(tmp_path: Path) -> None:
    made = tmp_path / "made"
    make_private_directory(made, "it")
    assert mode(made) == 0o700
    open_before = tmp_path / "open"
    open_before.mkdir(0o755)
    make_private_directory(open_before, "it")
    assert mode(open_before) == 0o700


def test_files_are_as_open_as_their_directory_and_never_to_everybody(tmp_path: Path) -> None:
    for directory_mode, file_mode in ((0o700, 0o600), (0o750, 0o640), (0o770, 0o660), (0o777, 0o660)):
        directory = tmp_path / f"{directory_mode:o}"
        directory.mkdir()
        directory.chmod(directory_mode)
        with open(directory / "file", "w", opener=private) as file:
            file.write("x")
        assert mode(directory / "file") == file_mode


def test_what_the_world_can_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir()
    path.chmod(0o777)
    for writers in (Writers.OWNER, Writers.GROUP):
        with pytest.raises(UserError, match="others can write to the state") as caught:
            make_private_directory(path, "the state", writers)
        assert "mode 777" in str(caught.value.got)
        assert "chmod -R go-w" in str(caught.value.remedy)
    assert mode(path) == 0o777
    make_private_directory(path, "the state", Writers.ANYONE)


def test_a_group_of_others_is_refused_unless_it_is_let_in(tmp_path: Path, foreign_group: None) -> None:
    path = tmp_path / "state"
    path.mkdir()
    path.chmod(0o770)
    with pytest.raises(UserError, match="others can write") as caught:
        require_trusted(path, "it")
    assert "the group staff can" in str(caught.value.got)
    make_private_directory(path, "it", Writers.GROUP)
    assert mode(path) == 0o770


def test_the_group_that_was_made_for_the_user_alone_is_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=me, gr_mem=[]))
    path = tmp_path / "state"
    path.mkdir()
    path.chmod(0o775)
    make_private_directory(path, "it")
    assert mode(path) == 0o700


def test_what_belongs_to_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    path.mkdir(0o755)
    owner = path.stat().st_uid or 4711
    os.chown(path, owner, -1)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(UserError, match="others can write"):
        require_trusted(path, "it")
    require_trusted(path, "it", Writers.GROUP)


def test_the_sticky_bit_will_do_where_entries_are_looked_at_themselves(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    require_trusted(tmp_path, "it", sticky_is_enough=True)
    with pytest.raises(UserError):
        require_trusted(tmp_path, "it")


def run_directory(place: Path, writers: Writers = Writers.OWNER) -> RunDirectory:
    return RunDirectory(str(place), "app", {}, writers)


def test_a_run_directory_is_private_and_one_that_others_can_write_is_neither_run_nor_read(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    rundir = run_directory(state)
    rundir.acquire()
    rundir.finish({})
    rundir.release()
    assert (mode(state), mode(rundir.path)) == (0o700, 0o700)
    assert {mode(path) for path in rundir.path.iterdir()} == {0o600}

    uses: list[Callable[[RunDirectory], Any]] = [
        lambda rundir: rundir.acquire(),
        lambda rundir: rundir.is_free(),
        lambda rundir: rundir.started,
        lambda rundir: rundir.home,
    ]
    for opened in (state, rundir.path):
        opened.chmod(0o777)
        for use in uses:
            with pytest.raises(UserError, match="others can write"):
                use(run_directory(state))
        assert run_directory(state, Writers.ANYONE).started
        opened.chmod(0o700)
    state.chmod(0o1777)  # like /tmp: the application's own directory is what counts
    assert run_directory(state).started


def test_a_savepoint_that_others_can_write_is_not_opened(tmp_path: Path) -> None:
    place = tmp_path / "savepoint"
    (place / "inner").mkdir(parents=True)
    for opened in (place, place / "inner"):
        place.chmod(0o755)
        (place / "inner").chmod(0o755)
        opened.chmod(0o777)
        with pytest.raises(UserError, match="others can write to the savepoint"):
            OpenedSavepoint(place)
    place.chmod(0o700)  # nobody reaches what lies in it
    with pytest.raises(SavepointError, match="no savepoint here"):
        OpenedSavepoint(place)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of this user, made with a jar, an archive of Java's classes and a folder of jars."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    place = make_cache_directory()
    kept(local_files.jar_path())
    archive = class_archive.archive_path()
    assert archive is not None
    kept(archive)
    kept(jars._place(PACKAGES) / "two-1.0.jar")
    jars._place(PACKAGES).chmod(0o755)
    return place


PACKAGES = ["one:two:1.0"]


def kept(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.touch(0o644)


def used() -> tuple[bool, bool, bool]:
    """Whether the jar, the archive and the fetched jars in the cache are used."""
    return (
        local_files.usable_jar() is not None,
        class_archive.java_options() != "",
        bool(jars.cached(PACKAGES)),
    )


def test_the_cache_is_made_for_its_owner_and_one_that_others_read_stays_so(cache: Path) -> None:
    assert (mode(cache), mode(cache.parent), mode(cache.parent.parent)) == (0o700, 0o700, 0o700)
    cache.chmod(0o755)
    assert make_cache_directory() == cache
    assert mode(cache) == 0o755, "root may keep it for all users of a machine"
    assert used() == (True, True, True)


def test_code_in_a_cache_that_others_can_write_is_not_loaded(cache: Path) -> None:
    cache.chmod(0o777)
    assert used() == (False, False, False)
    for make in (make_cache_directory, lambda: jars.fetch(PACKAGES, {})):
        with pytest.raises(UserError, match="others can write to the cache of Drivetrain") as caught:
            make()
        assert f"chmod -R go-w {cache}" in str(caught.value.remedy)


def test_a_file_of_the_cache_that_others_could_have_written_is_not_loaded(cache: Path) -> None:
    cache.chmod(0o755)
    archive = class_archive.archive_path()
    assert archive is not None
    fetched = jars._place(PACKAGES)
    for path, left in (
        (archive, (True, False, True)),
        (fetched, (True, True, False)),
        (fetched / "two-1.0.jar", (True, True, False)),
    ):
        path.chmod(0o666 | path.stat().st_mode)
        assert used() == left
        path.chmod(0o755)
        assert used() == (True, True, True)
    fetched.chmod(0o777)
    with pytest.raises(UserError, match="others can write to the cache of Drivetrain"):
        jars.fetch(PACKAGES, {})
    local_files.jar_path().chmod(0o666)
    assert local_files.usable_jar() is None


def test_commands_go_to_no_masters_that_others_can_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / LOCAL_CLUSTER_FILE
    file.parent.mkdir(0o755)
    file.touch(0o644)
    file.write_text('cluster.masters = "example:7070"\n')
    assert load_config(None, {})[MASTERS] == "example:7070"
    for opened, before in ((file.parent, 0o755), (file, 0o644)):
        opened.chmod(before | 0o022)
        with pytest.raises(UserError, match="others can write to what names the local cluster"):
            load_config(None, {})
        assert load_config(None, {}, finds_local=False)
        opened.chmod(before)
    file.parent.chmod(0o1777)
    with pytest.raises(UserError, match="others can write"):
        load_config(None, {})


def test_what_masters_and_workers_keep_is_private(tmp_path: Path) -> None:
    worker = tmp_path / "worker"
    make_private_directory(worker, "the worker's directory")
    writer = WorkerLogs(worker / "logs", 1_000, 2).writer("app-1", "executor-1")
    writer.write(b"hello\n")
    writer.close()
    LaunchRecords(worker / "launches").put(LaunchRecord("launch-1", "app-1", "executor-1"))
    code = CodeCache(worker / "code")
    code.append("0" * 64, b"x")
    code.close()
    make_private_directory(tmp_path / "master", "the master's directory")
    disk = DirectoryDisk(tmp_path / "master")

    async def keep() -> None:
        await disk.append("registry.log", b"x")
        await disk.write("vote", b"x")

    asyncio.run(keep())
    disk.close()
    (tmp_path / "clock").mkdir(0o700)
    DurableFile(tmp_path / "clock" / "file", "it", if_damaged="", if_full="").write(b"x")
    for path in tmp_path.rglob("*"):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path
