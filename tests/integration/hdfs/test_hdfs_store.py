"""Files of a real HDFS: what is promised of an object store, also while it does not answer or refuses."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from drivetrain.cli.checks.finding import Verdict
from drivetrain.cli.checks.object_store_checks import check_place
from drivetrain.config import Config
from drivetrain.errors import MissingDependencyError, UnavailableError, UserError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects import hdfs_store
from drivetrain.runtime.objects.hdfs_store import HdfsStore
from drivetrain.runtime.objects.object_files import objects_of
from drivetrain.runtime.objects.object_store import StoreAccessError
from free_ports import free_port
from hdfs_server import HdfsServer


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> str:
    return f"t{abs(hash(request.node.name)):x}"


def test_of_twelve_that_create_a_name_one_succeeds(hdfs: HdfsServer, folder: str) -> None:
    stores = [hdfs.store() for _ in range(12)]
    for number in range(5):
        won: list[int] = []
        start = threading.Barrier(len(stores))
        threads = [
            threading.Thread(target=_create, args=(start, f"{folder}/{number}", won, *one))
            for one in enumerate(stores)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [b"%d" % writer for writer in won] == [stores[0].get(f"{folder}/{number}")]
    assert all_names(stores[0], folder) == [f"/{folder}/{number}" for number in range(5)]


def _create(start: threading.Barrier, path: str, won: list[int], writer: int, store: HdfsStore) -> None:
    start.wait()
    if store.put_if_absent(path, b"%d" % writer):
        won.append(writer)


def all_names(store: HdfsStore, folder: str) -> list[str]:
    """Hidden ones as well."""
    found = store._connected().list_status(f"/{folder}", recursive=True)
    return sorted(one.path for one in found if not one.isdir)


@pytest.mark.parametrize("lost", ["WRITE", "RENAME"])
def test_who_created_a_file_is_told_so_although_the_answer_was_lost(
    hdfs: HdfsServer, folder: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    store, requests = hdfs.store(), itertools.count()
    answer = store._answer

    def answered(request: Any, timeout_s: float) -> Any:
        found, number = answer(request, timeout_s), next(requests)
        if number == ["WRITE", "RENAME"].index(lost):
            raise TimeoutError("no answer")
        return found

    monkeypatch.setattr(store, "_answer", answered)
    assert store.put_if_absent(f"{folder}/a", b"mine")
    monkeypatch.undo()
    assert not store.put_if_absent(f"{folder}/a", b"another's")
    assert store.get(f"{folder}/a") == b"mine"
    store.put(f"{folder}/a", b"replaced")
    assert store.get(f"{folder}/a") == b"replaced"


def test_what_a_dead_writer_left_is_not_listed_and_goes_a_day_later(hdfs: HdfsServer, folder: str) -> None:
    store = hdfs.store()
    left, waits = (f"{folder}/.{letter * 32}.writing" for letter in "ab")
    for name in (left, waits, f"{folder}/.hidden"):
        with store._connected().create(f"/{name}", hdfs_store._creating()) as out:
            out.write(b"half")
    long_ago_ms = int(time.time() * 1000) - 25 * 3_600_000
    store._connected().set_times(f"/{left}", long_ago_ms, long_ago_ms)
    assert [one.path for page in store.pages(folder) for one in page] == [f"{folder}/.hidden"]
    assert all_names(store, folder) == [f"/{waits}", f"/{folder}/.hidden"]


def test_a_writer_whose_file_was_deleted_while_it_slept_concludes_nothing(
    hdfs: HdfsServer, folder: str
) -> None:
    store = hdfs.store()
    assert store.put_if_absent(f"{folder}/a", b"another's")
    with pytest.raises(UnavailableError, match="is gone"):
        store._rename(f"{folder}/.swept.writing", f"{folder}/a", time.time() - 7_200)


def test_listing_comes_by_pages_in_the_order_of_names(
    hdfs: HdfsServer, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdfs_store, "PAGE", 3)
    store = hdfs.store()
    names = [f"{folder}/{name}" for name in ("a/b/c", "a-b", "a.b", "a/a", "b", "a0", "a/b.c")]
    for name in names:
        store.put(name, name.encode())
    store.put(f"{folder}-beside", b"")
    pages = [[one.path for one in page] for page in store.pages(folder)]
    assert list(map(len, pages)) == [3, 3, 1]
    assert list(itertools.chain(*pages)) == sorted(names)
    for after in names:
        found = [one.path for page in store.pages(folder, after) for one in page]
        assert found == [name for name in sorted(names) if name > after]
    assert (store.get(names[0], 1, 3), store.get(names[0], 2)) == (
        names[0][1:3].encode(),
        names[0][2:].encode(),
    )
    assert store.get(names[0], 3, 3) == b""
    assert store.find(folder) is None
    assert list(store.pages(f"{folder}/nothing")) == []


def test_it_is_a_file_system(hdfs: HdfsServer, folder: str) -> None:
    files, root = locate(f"{hdfs.uri}/{folder}", hdfs.settings())
    assert objects_of(files) is not None
    assert files.get_file_info(root).type == pafs.FileType.NotFound
    with files.open_output_stream(f"{root}/one ü=%20.txt") as out:
        out.write(b"first\nsecond\n")
    with files.open_output_stream(f"{root}/deep/two.txt.gz", compression="gzip") as out:
        out.write(b"third\n")
    files.create_dir(f"{root}/nothing", recursive=True)
    kinds = {one.path: one.type for one in files.get_file_info(pafs.FileSelector(root))}
    assert kinds == {f"{root}/one ü=%20.txt": pafs.FileType.File, f"{root}/deep": pafs.FileType.Directory}
    below = files.get_file_info(pafs.FileSelector(root, recursive=True))
    assert Counter(one.base_name for one in below) == {"one ü=%20.txt": 1, "two.txt.gz": 1}
    with files.open_input_file(f"{root}/one ü=%20.txt") as read:
        assert read.read_at(6, 6) == b"second"
        assert read.size() == 13
    with files.open_input_stream(f"{root}/deep/two.txt.gz", compression="gzip") as read:
        assert read.read() == b"third\n"
    files.move(f"{root}/deep/two.txt.gz", f"{root}/one ü=%20.txt")
    with files.open_input_file(f"{root}/one ü=%20.txt") as read:
        assert read.read() == b"first\nsecond\n"  # a move replaces nothing
    assert files.get_file_info(f"{root}/deep/two.txt.gz").type == pafs.FileType.NotFound
    files.move(f"{root}/one ü=%20.txt", f"{root}/new/place")
    with files.open_input_file(f"{root}/new/place") as read:
        assert read.read() == b"first\nsecond\n"
    files.delete_dir(root)
    assert files.get_file_info(root).type == pafs.FileType.NotFound
    with pytest.raises(FileNotFoundError):
        files.open_input_file(f"{root}/one")


# -- what goes wrong -------------------------------------------------------------------------------------


@pytest.mark.nightly("the unit tests of repeated requests")
def test_requests_are_repeated_until_a_suspended_server_answers(hdfs: HdfsServer, folder: str) -> None:
    patient, impatient = hdfs.store(timeout_ms=2_000), hdfs.store(timeout_ms=500, retry_ms=700)
    assert patient.put_if_absent(f"{folder}/a", b"1")
    assert impatient.find(f"{folder}/a")
    hdfs.stop()
    try:
        with pytest.raises(UnavailableError, match="does not answer") as raised:
            impatient.put(f"{folder}/b", b"2")
        assert "drivetrain doctor" in str(raised.value.remedy)
        threading.Timer(5, hdfs.go_on).start()
        assert not patient.put_if_absent(f"{folder}/a", b"another's")
    finally:
        hdfs.go_on()
    assert patient.get(f"{folder}/a") == b"1"


def test_a_stranger_is_refused_and_told_who_may(
    hdfs: HdfsServer, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hdfs.store().put(f"{folder}/a", b"1")
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    stranger = hdfs.store()
    assert stranger.get(f"{folder}/a") == b"1"
    for change in (
        lambda: stranger.put(f"{folder}/a", b"2"),
        lambda: stranger.put_if_absent(f"{folder}/b", b"2"),
        lambda: stranger.delete(f"{folder}/a"),
    ):
        with pytest.raises(StoreAccessError, match="does not allow") as raised:
            change()
        assert isinstance(raised.value, PermissionError)
        assert "user=stranger" in str(raised.value)
        assert "FSPermissionChecker" not in str(raised.value)
        assert "HADOOP_USER_NAME" in str(raised.value.remedy)


@pytest.mark.nightly("it ends safe mode by two processes of Java")
def test_safe_mode_is_waited_for_and_then_named(hdfs: HdfsServer, folder: str) -> None:
    store = hdfs.store(retry_ms=300)
    store.put(f"{folder}/a", b"1")
    hdfs.admin("-safemode", "enter")
    try:
        with pytest.raises(UnavailableError, match="safe mode") as raised:
            store.put(f"{folder}/b", b"1")
        assert "-safemode leave" in str(raised.value.remedy)
        found = check_place(f"{hdfs.uri}/{folder}", Config.load(None, {}, hdfs.sets()))
        assert (found.verdict, "safe mode" in found.found) == (Verdict.FAIL, True)
        assert store.get(f"{folder}/a") == b"1"
    finally:
        hdfs.admin("-safemode", "leave")
    assert store.put_if_absent(f"{folder}/b", b"1")


def test_a_place_that_can_be_used_is_said_to_be(hdfs: HdfsServer, folder: str) -> None:
    found = check_place(f"{hdfs.uri}/{folder}", Config.load(None, {}, hdfs.sets()))
    assert (found.verdict, found.remedy) == (Verdict.OK, None)
    assert "a second object of one name is refused" in found.found
    assert all_names(hdfs.store(), folder) == []


def test_a_name_node_that_replaces_names_is_refused(
    hdfs: HdfsServer, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = HdfsStore._rename
    monkeypatch.setattr(HdfsStore, "_rename", lambda *of: rename(*of, replaces=True))
    found = check_place(f"{hdfs.uri}/{folder}", Config.load(None, {}, hdfs.sets()))
    assert (found.verdict, "although there is one" in found.found) == (Verdict.FAIL, True)


@pytest.mark.parametrize(
    ("place", "says", "remedy"),
    [
        (f"hdfs://127.0.0.1:{free_port()}/x", "Connection refused", "name node"),
        ("hdfs://nowhere.invalid:8020/x", "does not answer", "name node"),
        ("hdfs://service/x", "name service", "hdfs.config-dir"),
        ("hdfs:///x", "not a place in an object store", "correct"),
    ],
    ids=["port", "host", "service", "uri"],
)
def test_what_is_wrong_with_an_address_comes_with_what_to_do(place: str, says: str, remedy: str) -> None:
    found = check_place(place, Config())
    assert found.verdict is Verdict.FAIL
    assert says in found.found + str(found.remedy)
    assert remedy in str(found.remedy)


def test_a_missing_package_is_named(hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(MissingDependencyError, match="HDFS needs a package") as raised:
        hdfs.store().find("a")
    assert "drivetrain[hdfs]" in str(raised.value.remedy)


def test_settings_come_from_the_section(tmp_path: Path) -> None:
    sets = {"hdfs.config-dir": str(tmp_path), "hdfs.timeout": "3 s", "hdfs.retry-for": "0 s"}
    settings = locate_settings(sets)
    assert (settings.hdfs_config_dir, settings.hdfs_timeout_ms, settings.hdfs_retry_ms) == (
        str(tmp_path),
        3_000,
        0,
    )
    (tmp_path / "core-site.xml").write_text("<configuration></configuration>")
    (tmp_path / "hdfs-site.xml").write_text("<configuration></configuration>")
    with pytest.raises(UserError, match="name service"):
        HdfsStore("service", replace(settings, hdfs_retry_ms=100)).find("a")


def locate_settings(sets: dict[str, str]) -> Any:
    from drivetrain.runtime.objects.settings import StoreSettings

    return StoreSettings.of(Config.load(None, {}, sets))
