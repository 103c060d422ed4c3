"""A bucket of a real object store: what is promised of one, also while requests to it fail."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects.locations import open_place
from drivetrain.runtime.objects.obstore_store import NoBucketError, ObstoreStore
from drivetrain.runtime.objects.settings import StoreSettings
from object_store import SECRET_KEY, S3Server
from store_faults import Fault, FaultyStore


@pytest.fixture
def bucket(s3: S3Server, request: pytest.FixtureRequest) -> str:
    name = f"b{abs(hash(request.node.name)):x}"[:40]
    s3.bucket(name)
    return name


def test_of_twelve_that_create_a_name_one_succeeds(s3: S3Server, bucket: str) -> None:
    stores = [ObstoreStore(bucket, s3.settings()) for _ in range(12)]
    for number in range(10):
        won: list[int] = []
        start = threading.Barrier(len(stores))

        threads = [
            threading.Thread(target=_create, args=(start, number, won, *one)) for one in enumerate(stores)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [b"%d" % writer for writer in won] == [stores[0].get(f"log/{number}")]


def _create(start: threading.Barrier, number: int, won: list[int], writer: int, store: ObstoreStore) -> None:
    start.wait()
    if store.put_if_absent(f"log/{number}", b"%d" % writer):
        won.append(writer)


@pytest.mark.parametrize(
    "fault",
    [Fault.LOST_ANSWER, pytest.param(Fault.SILENCE, marks=pytest.mark.nightly("it waits")), Fault.BUSY],
)
def test_who_created_an_object_is_told_so_whatever_became_of_the_answer(
    s3: S3Server, bucket: str, fault: Fault
) -> None:
    with FaultyStore(s3.endpoint, silence_s=5.5) as proxy:
        store = ObstoreStore(bucket, s3.settings(endpoint=proxy.endpoint))
        turns = itertools.count()
        proxy.plan = lambda method, _: fault if method == "PUT" and next(turns) == 0 else Fault.NONE
        assert store.put_if_absent("new", b"mine")
        assert proxy.faults[fault] == 1
        assert not store.put_if_absent("new", b"another's")
        assert store.get("new") == b"mine"


def test_reading_goes_on_after_a_body_that_was_cut(s3: S3Server, bucket: str) -> None:
    content = bytes(range(256)) * 4096
    with FaultyStore(s3.endpoint) as proxy:
        store = ObstoreStore(bucket, s3.settings(endpoint=proxy.endpoint))
        store.put("large", content)
        turns = itertools.count()
        proxy.plan = lambda *_: Fault.CUT_BODY if next(turns) % 2 == 0 else Fault.NONE
        assert store.get("large") == content
        assert store.get("large", 1000, 500_000) == content[1000:500_000]
        assert proxy.faults[Fault.CUT_BODY] >= 2


def test_a_store_that_stays_away_is_an_error_that_names_it(s3: S3Server, bucket: str) -> None:
    with FaultyStore(s3.endpoint) as proxy:
        store = ObstoreStore(bucket, s3.settings(endpoint=proxy.endpoint, retry_ms=700))
        proxy.plan = lambda *_: Fault.BUSY
        with pytest.raises(UnavailableError, match="does not answer") as raised:
            store.put_if_absent("new", b"")
    assert f"s3://{bucket}/new" in str(raised.value)
    assert "503" in str(raised.value)


def test_what_cannot_be_is_told_at_once(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoBucketError, match="no such bucket"):
        ObstoreStore("nowhere", s3.settings()).put_if_absent("x", b"")
    with pytest.raises(NoBucketError):
        list(ObstoreStore("nowhere", s3.settings()).pages(""))
    with FaultyStore(s3.endpoint) as proxy:
        proxy.plan = lambda *_: Fault.REFUSED
        with pytest.raises(UserError, match="refuses a request"):
            ObstoreStore(bucket, s3.settings(endpoint=proxy.endpoint)).put("x", b"")
    monkeypatch.setenv("TESTS_S3_SECRET", "wrong")
    with pytest.raises(PermissionError, match="not allowed"):
        ObstoreStore(bucket, s3.settings()).put("x", b"")
    with pytest.raises(UserError, match="TESTS_S3_NOTHING"):
        ObstoreStore(bucket, StoreSettings(access_key="${TESTS_S3_NOTHING}"))


def test_credentials_that_were_renewed_are_used_by_the_next_request(
    s3: S3Server, bucket: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("expired")
    settings = replace(s3.settings(), secret_key=f"${{file:{secret}}}")
    store, name = open_place(f"s3://{bucket}/b", settings)
    with pytest.raises(PermissionError):
        store.find(name)
    files, root = locate(f"s3://{bucket}/a", settings)
    with pytest.raises(PermissionError):
        files.get_file_info(root)
    secret.write_text(SECRET_KEY)
    assert store.find(name) is None
    assert files.get_file_info(root).type == pafs.FileType.NotFound


def test_listing_comes_by_pages_in_the_order_of_names(
    s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.runtime.objects.obstore_store.PAGE", 4)
    store = ObstoreStore(bucket, s3.settings())
    for number in range(10):
        store.put(f"in/{number:02d}", b"x" * number)
    store.put("inside", b"")
    pages = [[(one.path, one.size_bytes) for one in page] for page in store.pages("in")]
    assert [len(page) for page in pages] == [4, 4, 2]
    assert list(itertools.chain(*pages)) == [(f"in/{number:02d}", number) for number in range(10)]
    assert [one.path for page in store.pages("in", after="in/07") for one in page] == ["in/08", "in/09"]
    store.delete("in/08")
    store.delete("in/08")
    assert store.find("in/08") is None


def test_it_is_a_file_system(s3: S3Server, bucket: str) -> None:
    files, root = locate(f"s3://{bucket}/a", s3.settings())
    assert files.get_file_info(root).type == pafs.FileType.NotFound
    with files.open_output_stream(f"{root}/one ü=%20.txt") as out:
        out.write(b"first\nsecond\n")
        assert files.get_file_info(root).type == pafs.FileType.NotFound
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
    files.delete_dir(root)
    assert files.get_file_info(root).type == pafs.FileType.NotFound
    with pytest.raises(FileNotFoundError):
        files.open_input_file(f"{root}/one")
