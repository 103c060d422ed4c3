"""Text files are looked through before Spark reads them: what is found is what Python finds in the bytes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drivetrain.connectors.files import text_check
from drivetrain.connectors.files.file_log import FileLog
from drivetrain.connectors.files.text_check import TextCheck, TextContent, ends_with_return, look_through
from drivetrain.errors import InputError
from drivetrain.runtime.file_locations import FoundFile

PIECES = [
    "a",
    "word ",
    "\n",
    "\r",
    "\r\n",
    "\ufeff",
    "\x00",
    "ß",
    "漢",
    "\ud7ff",
    "\ue000",
    "\U0001f600",
    "\U0010ffff",
]
NOT_UTF8 = [
    b"\x80",
    b"\xbf\xbf\xbf\xbf",
    b"\xc3",
    b"\xe6\xbc",
    b"\xf0\x9f\x98",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xe0\x80\x80",
    b"\xf8\x88\x80\x80\x80",
]
parts = st.lists(
    st.one_of(st.sampled_from([piece.encode() for piece in PIECES]), st.binary(max_size=4)), max_size=40
)


def is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def logged(tmp_path: Path, *contents: bytes) -> tuple[FileLog, list[FoundFile]]:
    found = []
    for number, content in enumerate(contents):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(content)
        found.append(FoundFile(str(path), len(content)))
    log = FileLog(pafs.LocalFileSystem(), str(tmp_path / "log"))
    log.append((file, False) for file in found)
    return log, found


def chosen(tmp_path: Path, log: FileLog) -> TextCheck:
    (tmp_path / "list").mkdir()
    check = TextCheck(tmp_path / "list")
    check.choose(log)
    return check


@given(parts, st.integers(4, 16))
@example([b"\xf0\x9f\x98\x80"], 4)
@example([b"abcd", b"\xf0\x9f\x98"], 4)
@example([b"\xbf\xbf\xbf\xbf"], 4)
def test_what_is_found_does_not_depend_on_the_blocks(data: Sequence[bytes], block_bytes: int) -> None:
    whole = b"".join(data)
    with tempfile.NamedTemporaryFile() as file:
        file.write(whole)
        file.flush()
        content = look_through(file.name, block_bytes)
    assert content.is_utf8 is is_text(whole)
    if content.is_utf8:
        assert content.has_returns is (b"\r" in whole)


@pytest.mark.parametrize("bad", NOT_UTF8, ids=bytes.hex)
@pytest.mark.parametrize("before", range(9))
def test_bytes_that_are_not_utf8_are_found_at_every_place_of_a_block(
    tmp_path: Path, bad: bytes, before: int
) -> None:
    for after in (b"", b"\n", b"a" * 20):
        (tmp_path / "a.txt").write_bytes(b"x" * before + bad + after)
        assert not look_through(str(tmp_path / "a.txt"), 8).is_utf8


@pytest.mark.parametrize(
    ("content", "ends"), [(b"", False), (b"a\n", False), (b"a\r\n", False), (b"\r", True), (b"a\nb\r", True)]
)
def test_a_carriage_return_at_the_end_is_part_of_the_last_line(
    tmp_path: Path, content: bytes, ends: bool
) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    assert ends_with_return(str(tmp_path / "a.txt")) is ends


def test_a_file_that_is_gone_is_an_error_of_the_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        look_through(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("contents", "without"),
    [
        ([b"a\nb", b"\xc3\x9f\n"], True),
        ([b"a\nb", b"c\r\n"], False),
        ([b"a\rb"], False),
        ([b"a", b"\xff\n"], False),
        ([], True),
    ],
    ids=["only-lf", "crlf", "lone-cr", "not-utf8", "none"],
)
def test_line_ends_of_spark_are_chosen_for_text_without_returns(
    tmp_path: Path, contents: list[bytes], without: bool
) -> None:
    log, _ = logged(tmp_path, *contents)
    assert chosen(tmp_path, log).has_no_returns is without
    assert TextCheck(tmp_path / "list").has_no_returns is without  # the next start keeps the choice


def test_large_input_is_not_looked_through_before_the_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = logged(tmp_path, b"1234", b"5678")
    monkeypatch.setattr(text_check, "MAX_SCAN_BYTES", 7)
    assert not chosen(tmp_path, log).has_no_returns


def test_a_file_is_looked_through_once_unless_it_was_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def look(path: str) -> TextContent:
        looked.append(path)
        return look_through(path)

    monkeypatch.setattr(text_check, "look_through", look)
    log, found = logged(tmp_path, b"fine\n", b"fine\n")
    check = chosen(tmp_path, log)
    for file in found:
        check.require(file)
    assert looked == [file.path for file in found]
    _write_later(found[1].path, b"f\xefne\n")
    with pytest.raises(InputError, match=r"1.txt, line 1.*\n?.*"):
        check.require(found[1])
    _write_later(found[1].path, b"fi\rn\n")
    with pytest.raises(InputError, match="changed after the application first saw it"):
        check.require(found[1])


def test_the_first_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    log, found = logged(tmp_path, b"fine\r\nfine\nn\xe4sty\n\xff\n")
    with pytest.raises(InputError) as caught:
        chosen(tmp_path, log).require(found[0])
    assert "0.txt, line 3" in str(caught.value)
    assert "0xe4" in str(caught.value)


def _write_later(path: str, content: bytes) -> None:
    """Write in place, as of a second later: the file's time may be as coarse as the clock's tick."""
    before = os.stat(path)
    Path(path).write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
