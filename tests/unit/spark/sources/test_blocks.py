from __future__ import annotations

import bz2
import csv
import gzip
import io
import itertools
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivetrain.connectors.files import blocks
from drivetrain.connectors.files.blocks import Block, LineNumbers, first_line, read_blocks
from drivetrain.connectors.files.file_log import FileSplit
from drivetrain.errors import InputError
from nightly_run import examples

LOCAL = pafs.LocalFileSystem()
quick = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150), deadline=None
)


def records(block: Block) -> list[bytes]:
    starts = [0, *(int(end) + 1 for end in block.ends[:-1])]
    return [block.data[a : int(b)] for a, b in zip(starts, block.ends, strict=True)]


def naive(content: bytes) -> list[bytes]:
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def split_of(path: Path, start: int, end: int, *, whole: bool = False) -> FileSplit:
    return FileSplit(str(path), start, end, path.stat().st_size, whole)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 8)


content_strategy = st.lists(
    st.sampled_from([b"", b"a", b"bc", b"0123456789abcdef", b"\xff", b"x\r"]), max_size=12
).flatmap(lambda lines: st.sampled_from([b"\n".join(lines), b"\n".join(lines) + b"\n"]))


@quick
@given(content_strategy, st.lists(st.integers(0, 100), max_size=5), st.booleans())
def test_every_record_is_in_exactly_one_split_whatever_the_cuts(
    tmp_path: Path, small_blocks: None, content: bytes, cuts: list[int], mark: bool
) -> None:
    content = b"\xef\xbb\xbf" + content if mark else content
    path = tmp_path / "f"
    path.write_bytes(content)
    borders = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    found = [
        record
        for a, b in itertools.pairwise(borders)
        for block in read_blocks(LOCAL, split_of(path, a, b))
        for record in records(block)
    ]
    assert found == naive(content)


@quick
@given(content_strategy, st.lists(st.integers(0, 100), max_size=3))
def test_line_numbers_are_those_of_the_file(
    tmp_path: Path, small_blocks: None, content: bytes, cuts: list[int]
) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    borders = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    numbers = []
    for a, b in itertools.pairwise(borders):
        lines = LineNumbers(LOCAL, split_of(path, a, b), None)
        for block in read_blocks(LOCAL, split_of(path, a, b)):
            starts = [0, *(int(end) + 1 for end in block.ends[:-1])]
            numbers += [lines.of(block, start) for start in starts]
    assert numbers == list(range(1, len(naive(content)) + 1))


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_compressed_file_reads_as_its_content(
    tmp_path: Path, small_blocks: None, suffix: str, compress
) -> None:  # type: ignore[no-untyped-def]
    content = b"\xef\xbb\xbfone\ntwo\n\n" + b"long" * 20 + b"\nlast"
    path = tmp_path / f"f{suffix}"
    path.write_bytes(compress(content))
    found = list(read_blocks(LOCAL, split_of(path, 0, path.stat().st_size, whole=True)))
    assert [record for block in found for record in records(block)] == naive(content)
    assert next(block.offset for block in found) == 3


cells = st.text(alphabet='ab"\n,', max_size=6)


@quick
@given(st.lists(st.tuples(cells, cells), max_size=8))
def test_line_breaks_inside_quotes_do_not_end_a_record(
    tmp_path: Path, small_blocks: None, rows: list[tuple[str, str]]
) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    path = tmp_path / "f.csv"
    path.write_text(text.getvalue())
    found = [
        record.decode()
        for block in read_blocks(LOCAL, split_of(path, 0, path.stat().st_size, whole=True), '"')
        for record in records(block)
    ]
    assert [tuple(next(csv.reader(io.StringIO(record, newline="")))) for record in found] == rows


@pytest.mark.parametrize("change", ["gone", "grown"])
def test_a_file_that_changed_since_it_was_logged_is_an_error(tmp_path: Path, change: str) -> None:
    path = tmp_path / "f"
    path.write_text("one\n")
    split = split_of(path, 0, 4)
    if change == "gone":
        path.unlink()
    else:
        path.write_text("one\ntwo\n")
    with pytest.raises(InputError, match="changed after") as caught:
        list(read_blocks(LOCAL, split))
    assert caught.value.where == str(path)
    assert caught.value.remedy


def test_a_damaged_archive_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(b"one\n" * 1000)[:30])
    with pytest.raises(InputError) as caught:
        list(read_blocks(LOCAL, split_of(path, 0, 30, whole=True)))
    assert caught.value.where == str(path)


def test_a_record_without_end_is_an_error_not_a_full_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_blocks: None
) -> None:
    monkeypatch.setattr(blocks, "MAX_RECORD_BYTES", 64)
    path = tmp_path / "f"
    path.write_bytes(b"x" * 1000)
    for whole in (False, True):
        with pytest.raises(InputError, match="longer than"):
            list(read_blocks(LOCAL, split_of(path, 0, 500, whole=whole)))


def test_counting_lines_gives_up_where_it_would_cost_too_much(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"ab\n" * 100)
    split = split_of(path, 150, 300)
    block = next(iter(read_blocks(LOCAL, split)))
    assert LineNumbers(LOCAL, split, 100).of(block, 0) is None
    assert LineNumbers(LOCAL, split, 200).of(block, 0) == 51


def test_the_first_line_has_no_break(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,y\r\n1,2\r\n")
    (tmp_path / "b.csv").write_bytes(b"x,y")
    assert first_line(LOCAL, str(tmp_path / "a.csv")) == b"x,y"
    assert first_line(LOCAL, str(tmp_path / "b.csv")) == b"x,y"
