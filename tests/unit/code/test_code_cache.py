"""A worker's cache of code: verified, shared, kept while somebody uses it, gone afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.code.archive import Archive, BadArchiveError, pack
from drivetrain.code.cache import CodeCache
from drivetrain.errors import UnavailableError


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    (tmp_path / "app.py").write_text("x = 1")
    return pack(tmp_path / "app.py")


def test_code_arrives_in_parts_and_is_there_when_whole(tmp_path: Path, archive: Archive) -> None:
    cache = CodeCache(tmp_path / "code")
    half = archive.size_bytes // 2
    cache.append(archive.sha256, archive.data[:half])
    assert cache.arrived_bytes(archive.sha256) == half
    assert cache.path(archive.sha256) is None
    cache.append(archive.sha256, archive.data[half:])
    path = cache.install(archive.sha256)
    assert cache.path(archive.sha256) == path
    assert (path / "app.py").read_text() == "x = 1"
    assert cache.arrived_bytes(archive.sha256) == 0
    assert cache.install(archive.sha256) == path


def test_damaged_code_is_refused_and_forgotten(tmp_path: Path, archive: Archive) -> None:
    cache = CodeCache(tmp_path / "code")
    cache.append(archive.sha256, archive.data[:-1] + b"?")
    with pytest.raises(BadArchiveError):
        cache.install(archive.sha256)
    assert cache.path(archive.sha256) is None
    assert cache.arrived_bytes(archive.sha256) == 0


def test_code_goes_when_nobody_has_used_it_for_the_given_time(tmp_path: Path, archive: Archive) -> None:
    cache = CodeCache(tmp_path / "code")
    cache.use(archive.sha256, "one")
    cache.use(archive.sha256, "two")
    cache.append(archive.sha256, archive.data)
    path = cache.install(archive.sha256)
    cache.release(archive.sha256, "one", 10.0)
    assert cache.unused(1000.0, 5.0) == []
    cache.release(archive.sha256, "two", 20.0)
    assert cache.unused(24.9, 5.0) == []
    cache.use(archive.sha256, "three")
    assert cache.unused(1000.0, 5.0) == []
    cache.release(archive.sha256, "three", 30.0)
    assert cache.unused(35.0, 5.0) == [archive.sha256]
    assert cache.path(archive.sha256) is None
    cache.remove(archive.sha256)
    assert not path.exists()
    assert [left.name for left in (tmp_path / "code").iterdir()] == ["lock"]


def test_what_an_earlier_worker_left_is_removed_and_a_second_worker_is_refused(
    tmp_path: Path, archive: Archive
) -> None:
    first = CodeCache(tmp_path / "code")
    first.append(archive.sha256, archive.data)
    first.install(archive.sha256)
    with pytest.raises(UnavailableError, match="another worker"):
        CodeCache(tmp_path / "code")
    assert (tmp_path / "code" / archive.sha256).exists()
    first.close()
    second = CodeCache(tmp_path / "code")
    assert second.path(archive.sha256) is None
    assert [left.name for left in (tmp_path / "code").iterdir()] == ["lock"]


def test_a_name_that_is_no_hash_reaches_no_file(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "code")
    with pytest.raises(BadArchiveError):
        cache.append("../../out", b"x")
    assert not (tmp_path.parent / "out.part").exists()
