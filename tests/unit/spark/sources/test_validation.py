from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.api import sources
from drivetrain.config import Config
from drivetrain.connectors.opening import check_source
from drivetrain.errors import InputError
from drivetrain.runtime.file_locations import list_files, locate


def test_a_missing_path_is_an_error(tmp_path: Path) -> None:
    for watch in (False, True):
        with pytest.raises(InputError, match="no such file") as caught:
            check_source(sources.text(tmp_path / "nothing", watch=watch), Config())
        assert caught.value.where == str(tmp_path / "nothing")
        assert caught.value.remedy


def test_a_pattern_in_the_path_is_answered_with_the_glob_argument(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_source(sources.text(tmp_path / "*.txt"), Config())
    assert "glob=" in str(caught.value.remedy)


def test_a_directory_without_files_is_an_error_unless_it_is_watched(tmp_path: Path) -> None:
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "part").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    with pytest.raises(InputError, match="no file to read") as caught:
        check_source(sources.text(tmp_path), Config())
    assert "watch=True" in str(caught.value.remedy)
    check_source(sources.text(tmp_path, watch=True), Config())


def test_a_glob_that_matches_nothing_says_how_many_files_there_are(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(InputError) as caught:
        check_source(sources.text(tmp_path, glob="*.txt"), Config())
    assert "1 files, none of which matches '*.txt'" in str(caught.value.got)


def test_a_file_cannot_be_watched(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match="cannot be watched"):
        check_source(sources.text(tmp_path / "a.txt", watch=True), Config())
    check_source(sources.text(tmp_path / "a.txt"), Config())


def test_an_unknown_scheme_is_an_error() -> None:
    with pytest.raises(InputError, match="cannot be opened") as caught:
        check_source(sources.text("ftp://host/data"), Config())
    assert caught.value.where == "ftp://host/data"


def test_hidden_names_are_skipped_at_every_level_and_the_rest_is_in_order(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/1.txt", "a.txt", "_x/3.txt", "b/.4.txt", "b/_5/6.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    filesystem, root = locate(str(tmp_path))
    found = [file.path.removeprefix(f"{tmp_path}/") for file in list_files(filesystem, root, None)]
    assert found == ["a.txt", "b/1.txt", "b/2.txt"]
    assert [f.path for f in list_files(filesystem, root, "1.*")] == [str(tmp_path / "b/1.txt")]


def test_sources_without_files_have_nothing_to_check() -> None:
    check_source(sources.generate(rows=1), Config())
