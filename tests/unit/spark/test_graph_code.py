"""Graphs as code that another process can load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drivetrain.api import Application, sinks, sources
from drivetrain.code.application_file import load_application
from drivetrain.errors import InputError, UserError
from drivetrain.spark.prepare.graph_code import code_if_possible, graph_as_code, graph_from_code

SHOP = """
from drivetrain import Application, sinks, sources
import limits

def is_large(row) -> bool:
    return len(row.value) > limits.LEAST

app = Application("shop")
app.read(sources.text("in"), name="read").filter(is_large, name="large").sink(sinks.none(), name="out")
"""
LOAD = """
import sys
from types import SimpleNamespace
from drivetrain.spark.prepare.graph_code import graph_from_code
graph = graph_from_code(open(sys.argv[1], "rb").read(), "here")
(function,) = [thing for thing in graph.nodes["large"].operation.user_code() if callable(thing)]
print(graph.name, [function(SimpleNamespace(value="x" * n)) for n in (3, 4)])
"""


def test_another_process_runs_it_without_the_files_it_was_written_in(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "shop.py").write_text(SHOP)
    (tmp_path / "app" / "limits.py").write_text("LEAST = 3")
    code = graph_as_code(load_application(str(tmp_path / "app" / "shop.py"), {}).graph())
    (tmp_path / "app" / "limits.py").unlink()
    (tmp_path / "code").write_bytes(code)
    line = [sys.executable, "-c", LOAD, str(tmp_path / "code")]
    told = subprocess.run(line, capture_output=True, text=True, timeout=300, check=True).stdout
    assert told.split(maxsplit=1) == ["shop", "[False, True]\n"]


def test_what_cannot_be_pickled_is_an_error_or_no_code() -> None:
    app = Application("shop")
    app.read(sources.items(iter([1, 2]), schema="n bigint"), name="read").sink(
        sinks.batches(lambda df, _: lines.send(df)), name="out"
    )
    lines = (line for line in "ab")
    with pytest.raises(UserError, match="cannot be kept"):
        graph_as_code(app.graph())
    assert code_if_possible(app.graph()) is None


@pytest.mark.parametrize("code", [b"", b"Python 2.7;x", b"\x00" * 100])
def test_code_of_another_python_or_damaged_code_is_an_error(code: bytes) -> None:
    with pytest.raises(InputError, match="cannot be loaded"):
        graph_from_code(code, "version 1")


def test_torn_code_is_an_error() -> None:
    app = Application("shop")
    app.read(sources.text("in"), name="read").sink(sinks.none(), name="out")
    code = graph_as_code(app.graph())
    with pytest.raises(InputError, match="cannot be loaded"):
        graph_from_code(code[:-20], "version 1")
