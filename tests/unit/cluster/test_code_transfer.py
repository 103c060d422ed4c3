"""Moving an archive: goes on where it was, survives a change of leader, ends when it goes nowhere."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivetrain.actor import ActorFailedError, AskTimeoutError, Message
from drivetrain.cluster.code_transfer import CodeMissingError, fetch, upload
from drivetrain.cluster.messages.code import CHUNK_BYTES, CodeChunk, CodeStored, GetCode, PutCode
from drivetrain.code.archive import Archive, pack
from drivetrain.code.cache import CodeCache
from drivetrain.errors import PeerViolationError


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    (tmp_path / "app.py").write_bytes(random.Random(1).randbytes(3 * CHUNK_BYTES + 1000))
    return pack(tmp_path / "app.py")


class Store:
    """What a master does with `PutCode`."""

    def __init__(self) -> None:
        self.data = b""
        self.chunks: list[int] = []

    def put(self, message: PutCode) -> CodeStored:
        assert len(message.data) <= CHUNK_BYTES
        if message.offset == len(self.data) and message.data:
            self.data += message.data
            self.chunks.append(message.offset)
        complete = len(self.data) == message.size_bytes
        return CodeStored(message.sha256, len(self.data), complete)


def uploading(archive: Archive, leader: Callable[[], Store]) -> None:
    async def ask(message: Message, reply: type[Any]) -> Any:
        assert isinstance(message, PutCode)
        return leader().put(message)

    asyncio.run(upload(ask, archive))


def test_an_archive_is_sent_in_chunks_and_not_again(archive: Archive) -> None:
    store = Store()
    uploading(archive, lambda: store)
    assert store.data == archive.data
    assert len(store.chunks) == 4
    uploading(archive, lambda: store)
    assert len(store.chunks) == 4


def test_an_upload_goes_on_where_it_was(archive: Archive) -> None:
    store = Store()
    store.data = archive.data[:CHUNK_BYTES]
    uploading(archive, lambda: store)
    assert store.chunks[0] == CHUNK_BYTES
    assert store.data == archive.data


def test_a_new_leader_gets_what_it_lacks(archive: Archive) -> None:
    first, second = Store(), Store()
    second.data = archive.data[:100]
    asked = 0

    def leader() -> Store:
        nonlocal asked
        asked += 1
        return first if asked <= 3 else second

    uploading(archive, leader)
    assert first.data != archive.data
    assert second.data == archive.data


def test_an_upload_that_goes_nowhere_ends(archive: Archive) -> None:
    async def ask(message: Message, reply: type[Any]) -> Any:
        return CodeStored(archive.sha256, 0, False)

    with pytest.raises(PeerViolationError, match="makes no progress"):
        asyncio.run(upload(ask, archive))


class FakeMaster:
    """What a master does with `GetCode`; `fails` says how often it does not answer first."""

    def __init__(self, data: bytes | None, fails: int = 0) -> None:
        self.data, self.fails, self.asked = data, fails, 0

    async def ask(self, message: Message, reply: type[Any], *, timeout_ms: int) -> Any:
        assert isinstance(message, GetCode)
        self.asked += 1
        if self.fails:
            self.fails -= 1
            raise AskTimeoutError("no answer")
        if self.data is None:
            raise ActorFailedError("there is none", where="m", failure_code="no-code", remedy=None)
        offset = message.offset
        return CodeChunk(message.sha256, offset, len(self.data), self.data[offset : offset + CHUNK_BYTES])


class FakeSearch:
    def __init__(self, *masters: FakeMaster, leads: str | None = None) -> None:
        self.by_place = {f"m{number}:1": master for number, master in enumerate(masters)}
        self.masters, self.leads = tuple(self.by_place), leads

    async def master(self, place: str) -> FakeMaster:
        return self.by_place[place]

    def forget(self, place: str) -> None:
        pass


def fetching(search: FakeSearch, archive: Archive, cache: CodeCache) -> None:
    async def blocking(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    asyncio.run(fetch(search, archive.sha256, cache, blocking, timeout_ms=2_000))  # type: ignore[arg-type]


def test_the_leader_is_asked_first_and_another_master_when_it_has_none(
    tmp_path: Path, archive: Archive
) -> None:
    other, leader = FakeMaster(archive.data), FakeMaster(archive.data)
    cache = CodeCache(tmp_path / "one")
    fetching(FakeSearch(other, leader, leads="m1:1"), archive, cache)
    assert (other.asked, leader.asked) == (0, 4)
    assert (cache.install(archive.sha256) / "app.py").is_file()

    leader.data = None
    fetching(FakeSearch(other, leader, leads="m1:1"), archive, CodeCache(tmp_path / "two"))
    assert other.asked == 4


def test_a_download_goes_on_where_it_was_and_after_silence(tmp_path: Path, archive: Archive) -> None:
    cache = CodeCache(tmp_path / "code")
    cache.append(archive.sha256, archive.data[: 2 * CHUNK_BYTES])
    master = FakeMaster(archive.data, fails=2)
    fetching(FakeSearch(master), archive, cache)
    assert master.asked == 4  # twice in vain, then the two chunks that were missing
    assert (cache.install(archive.sha256) / "app.py").is_file()


def test_code_that_no_master_has_is_told_with_the_remedy(tmp_path: Path, archive: Archive) -> None:
    search = FakeSearch(FakeMaster(None), FakeMaster(None))
    with pytest.raises(CodeMissingError, match="do not have") as raised:
        fetching(search, archive, CodeCache(tmp_path / "code"))
    assert "submit the application again" in str(raised.value)


def test_masters_that_do_not_answer_are_asked_until_the_timeout(tmp_path: Path, archive: Archive) -> None:
    master = FakeMaster(archive.data, fails=10_000)
    with pytest.raises(CodeMissingError, match="no master gives"):
        fetching(FakeSearch(master), archive, CodeCache(tmp_path / "code"))
    assert master.asked >= 2
