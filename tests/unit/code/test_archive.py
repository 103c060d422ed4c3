"""An application's code as an archive: what goes in, always the same bytes, and nothing gets out."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.code.archive import Archive, ArchiveError, BadArchiveError, pack, unpack


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(archive: Archive) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(archive.data)) as file:
        return file.namelist()


def unpacked(archive: Archive, target: Path) -> dict[str, str]:
    unpack(archive.data, archive.sha256, target)
    return {
        path.relative_to(target).as_posix(): path.read_text() for path in target.rglob("*") if path.is_file()
    }


def test_a_file_goes_with_the_modules_and_packages_beside_it(tmp_path: Path) -> None:
    files = {
        "app.py": "import helper",
        "helper.py": "x = 1",
        "package/__init__.py": "",
        "package/words.txt": "a b",
        "package/deep/more.py": "y = 2",
    }
    others = {"data.csv": "1", "no_package/a.py": "", "package/__pycache__/a.pyc": "", ".venv/a.py": ""}
    put(tmp_path, {**files, **others})
    archive = pack(tmp_path / "app.py")
    assert archive.file == "app.py"
    assert unpacked(archive, tmp_path / "there") == files
    assert archive.sha256 == hashlib.sha256(archive.data).hexdigest()


def test_a_directory_goes_whole_without_state_output_and_environments(tmp_path: Path) -> None:
    kept = {"jobs/app.py": "import shared", "shared.py": "", "words/list.txt": "a"}
    skipped = {
        ".git/config": "",
        ".drivetrain/x": "",
        "env/pyvenv.cfg": "",
        "env/lib.py": "",
        "state/app-1/application.json": "{}",
        "state/app-1/fragments/f/offsets": "",
        "out/_drivetrain/owner.json": "{}",
        "out/part-0.csv": "1",
        "spark-out/_SUCCESS": "",
        "spark-out/part-0.csv": "1",
        "shared.pyc": "",
        "node_modules/a.js": "",
    }
    put(tmp_path / "project", {**kept, **skipped})
    archive = pack(tmp_path / "project" / "jobs" / "app.py", directory=tmp_path / "project")
    assert archive.file == "jobs/app.py"
    assert unpacked(archive, tmp_path / "there") == kept


def test_the_same_files_make_the_same_archive_wherever_and_whenever(tmp_path: Path) -> None:
    files = {"app.py": "1", "b/__init__.py": "2", "a.py": "3"}
    one = put(tmp_path / "one", files)
    other = put(tmp_path / "other", dict(reversed(files.items())))
    os.utime(other / "app.py", (1, 1))
    (other / "a.py").chmod(0o600)
    assert pack(one / "app.py") == pack(other / "app.py")
    (other / "a.py").write_text("4")
    assert pack(one / "app.py").sha256 != pack(other / "app.py").sha256


def test_a_relative_path_packs_as_an_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {"app.py": "", "b.py": ""})
    monkeypatch.chdir(tmp_path)
    assert pack(Path("app.py")) == pack(tmp_path / "app.py")


def test_extra_archives_and_files_are_put_at_the_top(tmp_path: Path) -> None:
    put(tmp_path, {"app/app.py": "", "tool.py": "t", "lib/__init__.py": "l"})
    with zipfile.ZipFile(tmp_path / "lib.whl", "w") as wheel:
        wheel.writestr("lib/__init__.py", "l")
    with tarfile.open(tmp_path / "more.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "tool.py", "more/tool.py")
    extras = [tmp_path / "lib.whl", tmp_path / "more.tar.gz", tmp_path / "tool.py"]
    archive = pack(tmp_path / "app" / "app.py", extras)
    assert names(archive) == ["app.py", "lib/__init__.py", "more/tool.py", "tool.py"]


def test_two_files_in_one_place_are_refused_unless_they_are_the_same(tmp_path: Path) -> None:
    put(tmp_path, {"app/app.py": "", "app/b.py": "1", "same/b.py": "1", "other/b.py": "2"})
    pack(tmp_path / "app/app.py", [tmp_path / "same/b.py"])
    with pytest.raises(ArchiveError, match="the same place") as raised:
        pack(tmp_path / "app/app.py", [tmp_path / "other/b.py"])
    assert "other/b.py" in str(raised.value)


def test_links_that_lead_out_are_refused_and_links_within_are_copied(tmp_path: Path) -> None:
    put(tmp_path, {"secret.py": "s", "app/app.py": "", "app/real.py": "r"})
    (tmp_path / "app/within.py").symlink_to(tmp_path / "app/real.py")
    assert unpacked(pack(tmp_path / "app/app.py"), tmp_path / "there")["within.py"] == "r"
    (tmp_path / "app/out.py").symlink_to(tmp_path / "secret.py")
    with pytest.raises(ArchiveError, match="leads out"):
        pack(tmp_path / "app/app.py")


def test_a_link_to_a_package_elsewhere_is_refused(tmp_path: Path) -> None:
    put(tmp_path, {"elsewhere/__init__.py": "", "app/app.py": ""})
    (tmp_path / "app/package").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArchiveError, match="leads out"):
        pack(tmp_path / "app/app.py")


def test_too_much_is_refused_and_the_largest_are_named(tmp_path: Path) -> None:
    put(tmp_path, {"app.py": "", "big.py": "x" * 2000, "small.py": "x"})
    with pytest.raises(ArchiveError, match="too large") as raised:
        pack(tmp_path / "app.py", largest_bytes=1000)
    assert "big.py" in str(raised.value)


def test_missing_files_and_bad_archives_are_told(tmp_path: Path) -> None:
    put(tmp_path, {"app.py": "", "bad.zip": "no zip", "other/x.py": ""})
    with pytest.raises(ArchiveError, match="no such file"):
        pack(tmp_path / "none.py")
    with pytest.raises(ArchiveError, match="no such archive"):
        pack(tmp_path / "app.py", [tmp_path / "none.zip"])
    with pytest.raises(ArchiveError, match="cannot be read"):
        pack(tmp_path / "app.py", [tmp_path / "bad.zip"])
    with pytest.raises(ArchiveError, match="not in the given directory"):
        pack(tmp_path / "app.py", directory=tmp_path / "other")


def hostile(name: str, mode: int = stat.S_IFREG | 0o644) -> tuple[bytes, str]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, "x")
    data = buffer.getvalue()
    return data, hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "name", ["../out.py", "/etc/out.py", "a/../../out.py", "a\\..\\out.py", "C:/out.py", ".."]
)
def test_names_that_lead_out_are_refused_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    data, sha256 = hostile(name)
    with pytest.raises(BadArchiveError):
        unpack(data, sha256, tmp_path / "in" / "there")
    assert [path for path in tmp_path.rglob("*") if path != tmp_path / "in"] == []


def test_links_in_an_archive_are_refused(tmp_path: Path) -> None:
    data, sha256 = hostile("link.py", stat.S_IFLNK | 0o777)
    with pytest.raises(BadArchiveError, match="something other"):
        unpack(data, sha256, tmp_path / "there")


def test_an_archive_that_swells_is_refused(tmp_path: Path) -> None:
    put(tmp_path, {"app.py": "x" * 100_000})
    archive = pack(tmp_path / "app.py")
    with pytest.raises(BadArchiveError, match="larger than allowed"):
        unpack(archive.data, archive.sha256, tmp_path / "there", largest_bytes=1_000)
    assert not (tmp_path / "there").exists()


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    put(tmp_path, {"app.py": "x"})
    archive = pack(tmp_path / "app.py")
    changed = bytearray(archive.data)
    changed[len(changed) // 2] ^= 1
    with pytest.raises(BadArchiveError, match="not the code"):
        unpack(bytes(changed), archive.sha256, tmp_path / "there")


@given(data=st.binary(max_size=300))
def test_what_is_no_archive_raises_only_what_is_promised(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    target = tmp_path_factory.mktemp("any") / "there"
    with pytest.raises(BadArchiveError):
        unpack(data, hashlib.sha256(data).hexdigest(), target)
    assert not target.exists()
