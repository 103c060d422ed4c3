"""Buckets of Google, containers of Azure: what is promised of an object store, also while requests fail."""

from __future__ import annotations

import itertools
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from drivetrain.api import sinks
from drivetrain.cli.checks.finding import Verdict
from drivetrain.cli.checks.object_store_checks import check_place
from drivetrain.config import Config
from drivetrain.connectors.opening import open_sink
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects.locations import open_place
from drivetrain.runtime.objects.object_store import ObjectStore
from drivetrain.runtime.objects.obstore_store import NoBucketError
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.measure import small_batches
from store_faults import Fault, FaultyStore
from stored_place import StoredPlace

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "spark" / "sinks"))
from arrow_frame import ArrowFrame, rows

AZURE = pytest.param("azure", marks=pytest.mark.nightly("it needs a package of npm"))


@dataclass
class Reached:
    """A place of the test's own, through a proxy that makes requests fail."""

    proxy: FaultyStore
    place: StoredPlace
    settings: StoreSettings

    def open(self, name: str = "", **more: Any) -> ObjectStore:
        return open_place(f"{self.place.uri}{name}", replace(self.settings, **more))[0]


@pytest.fixture(params=["google", AZURE])
def reached(request: pytest.FixtureRequest) -> Iterator[Reached]:
    server = request.getfixturevalue(request.param)
    place = server.place(f"b{zlib.crc32(request.node.name.encode()):x}")
    if request.param == "google":
        yield Reached(server, place, server.settings())
        server.plan = lambda *_: Fault.NONE
        return
    with FaultyStore(f"http://127.0.0.1:{server.port}") as proxy:
        yield Reached(proxy, place, server.settings(endpoint=proxy.endpoint))


def test_of_twelve_that_create_a_name_one_succeeds(reached: Reached) -> None:
    stores = [reached.open() for _ in range(12)]
    for number in range(5):
        won: list[int] = []
        start = threading.Barrier(len(stores))

        def create(writer: int, number: int = number, won: list[int] = won, start: Any = start) -> None:
            start.wait()
            if stores[writer].put_if_absent(f"log/{number}", b"%d" % writer):
                won.append(writer)

        with ExitStack() as running:
            for writer in range(len(stores)):
                thread = threading.Thread(target=create, args=(writer,))
                thread.start()
                running.callback(thread.join)
        assert [b"%d" % writer for writer in won] == [stores[0].get(f"log/{number}")]


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.BUSY])
def test_who_created_an_object_is_told_so_whatever_became_of_the_answer(
    reached: Reached, fault: Fault
) -> None:
    store, turns, before = reached.open(), itertools.count(), reached.proxy.faults[fault]
    reached.proxy.plan = lambda method, _: fault if method == "PUT" and next(turns) == 0 else Fault.NONE
    assert store.put_if_absent("new", b"mine")
    assert reached.proxy.faults[fault] == before + 1
    assert not store.put_if_absent("new", b"another's")
    assert store.get("new") == b"mine"


def test_listing_comes_by_pages_in_the_order_of_names(
    reached: Reached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.runtime.objects.obstore_store.PAGE", 4)
    store = reached.open()
    for number in range(10):
        store.put(f"in/{number:02d}", b"x" * number)
    store.put("inside", b"")
    pages = [[(one.path, one.size_bytes) for one in page] for page in store.pages("in")]
    assert [len(page) for page in pages] == [4, 4, 2]
    assert list(itertools.chain(*pages)) == [(f"in/{number:02d}", number) for number in range(10)]
    assert [one.path for page in store.pages("in", after="in/07") for one in page] == ["in/08", "in/09"]
    turns = itertools.count()
    reached.proxy.plan = lambda *_: Fault.CUT_BODY if next(turns) == 0 else Fault.NONE
    again = [one.path for page in store.pages("in") for one in page]
    assert again == [f"in/{number:02d}" for number in range(10)]
    store.delete("in/08")
    store.delete("in/08")
    assert store.find("in/08") is None


def test_what_cannot_be_is_told_at_once(reached: Reached, monkeypatch: pytest.MonkeyPatch) -> None:
    section = reached.place.uri.partition(":")[0]
    nowhere = open_place(f"{reached.place.uri}-nowhere", reached.settings)[0]
    with pytest.raises(NoBucketError, match=f"{section}.endpoint"):
        nowhere.put_if_absent("x", b"")
    with pytest.raises(NoBucketError):
        list(nowhere.pages(""))
    with pytest.raises(FileNotFoundError, match=f"{section}://"):
        reached.open().get("nothing")
    reached.proxy.plan = lambda *_: Fault.REFUSED
    with pytest.raises(UserError, match="refuses a request"):
        reached.open().put("x", b"")
    reached.proxy.plan = lambda *_: Fault.BUSY
    with pytest.raises(UnavailableError, match=f"{section}.retry-for") as raised:
        reached.open(gs_retry_ms=300, abfs_retry_ms=300).put("x", b"")
    assert "503" in str(raised.value)
    reached.proxy.plan = lambda *_: Fault.NONE
    with pytest.raises(UserError, match="cannot be used"):
        reached.open(gs_service_account_key="not JSON", abfs_account_key="%")
    monkeypatch.setenv("TESTS_GS_TOKEN", "wrong")
    monkeypatch.setenv("TESTS_ABFS_KEY", "d3Jvbmc=")
    with pytest.raises(PermissionError, match="not allowed") as refused:
        reached.open().put("x", b"")
    assert f"{section}." in str(refused.value)


def test_it_is_a_file_system(reached: Reached) -> None:
    files, root = locate(f"{reached.place.uri}/a", reached.settings)
    assert files.get_file_info(root).type == pafs.FileType.NotFound
    with files.open_output_stream(f"{root}/one ü=%20.txt") as out:
        out.write(b"first\nsecond\n")
    with files.open_output_stream(f"{root}/deep/two.txt.gz", compression="gzip") as out:
        out.write(b"third\n")
    kinds = {one.path: one.type for one in files.get_file_info(pafs.FileSelector(root))}
    assert kinds == {f"{root}/one ü=%20.txt": pafs.FileType.File, f"{root}/deep": pafs.FileType.Directory}
    with files.open_input_file(f"{root}/one ü=%20.txt") as read:
        assert read.read_at(6, 6) == b"second"
    files.move(f"{root}/deep/two.txt.gz", f"{root}/one ü=%20.txt")
    with files.open_input_file(f"{root}/one ü=%20.txt") as read:
        assert read.read() == b"first\nsecond\n"  # a move replaces nothing
    files.delete_dir(root)
    assert files.get_file_info(root).type == pafs.FileType.NotFound


@pytest.mark.parametrize("how", [{}, {"roll": "1 h"}], ids=["each", "rolled"])
def test_a_batch_of_a_sink_is_there_once_whoever_writes_it_again(
    reached: Reached, how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_batches, "small_table", ArrowFrame.toArrow)
    place = StoredPlace(f"{reached.place.uri}/out", reached.place.sets)
    context = SinkContext("app-1", "a", str(tmp_path), Config.load(None, {}, dict(place.sets)))
    declared = sinks.parquet(place.uri, **how)
    for batch in range(3):
        for _ in range(2):
            sink: Any = open_sink(declared, context)
            sink.validate()
            sink.write(rows(batch), batch)
    open_sink(declared, context).roll(ends=True)  # type: ignore[attr-defined] # it is a file sink
    assert sorted(row["id"] for row in place.rows("")) == [0, 1, 2]


def test_doctor_tries_what_a_place_must_keep(reached: Reached) -> None:
    config = Config.load(None, {}, dict(reached.place.sets))
    found = check_place(f"{reached.place.uri}/shop", config)
    assert (found.verdict, found.remedy) == (Verdict.OK, None)
    assert "a second object of one name is refused" in found.found
    assert reached.place.files("shop") == []
    section = reached.place.uri.partition(":")[0]
    elsewhere = Config.load(None, {}, {**reached.place.sets, f"{section}.endpoint": "http://127.0.0.1:1"})
    away = check_place(reached.place.uri, elsewhere)
    assert away.verdict is Verdict.FAIL
    assert f"{section}.endpoint" in str(away.remedy)
