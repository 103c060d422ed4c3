from __future__ import annotations

from pathlib import Path

import pytest
from file_reading import read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructType

from drivetrain.api import sources
from drivetrain.connectors.files import blocks
from drivetrain.errors import InputError
from nightly_run import examples

VALUE = StructType().add("value", StringType())
quick = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(100), deadline=None
)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 16)


@quick
@given(
    st.lists(
        st.text(alphabet=st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=30), max_size=10
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.lists(st.integers(0, 200), max_size=3),
)
def test_lines_become_messages_whatever_the_splits(
    tmp_path: Path, small_blocks: None, lines: list[str], ending: str, closed: bool, cuts: list[int]
) -> None:
    content = ending.join(lines) + (ending if closed and lines else "")
    path = tmp_path / "f.txt"
    path.write_bytes(content.encode())
    expected = content.split(ending)
    if expected[-1] == "":
        expected.pop()
    first = expected[0].removeprefix("\ufeff") if expected else ""
    if expected:
        expected[0] = first
    assert [row["value"] for row in read(sources.text(path), VALUE, cuts)] == expected


def test_text_that_is_not_utf8_is_an_error_with_file_line_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "latin1.txt"
    path.write_bytes(b"good\n" * 3000 + "caf\u00e9 au lait\n".encode("latin-1") + b"good\n")
    with pytest.raises(InputError) as caught:
        read(sources.text(path), VALUE)
    message = str(caught.value)
    assert caught.value.where == f"{path}, line 3001"
    assert "not UTF-8" in message
    assert "0xe9 at position 4" in message
    assert r"caf\xe9 au lait" in message
    assert "dead_letter" in message


def test_text_that_is_not_utf8_goes_to_the_dead_letters_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "mixed.txt"
    path.write_bytes(b"one\n\xff\xfe\ntwo\n")
    rows = read(sources.text(path, on_bad_record="dead_letter"), VALUE)
    assert [row["value"] for row in rows] == ["one", None, "two"]
    assert [row["__bad"] is None for row in rows] == [True, False, True]
    assert rows[1]["__bad"]["raw"] == r"\xff\xfe"
    assert rows[1]["__bad"]["line"] == 2
    assert rows[1]["__bad"]["file"] == str(path)
    assert "UTF-8" in rows[1]["__bad"]["error"]
