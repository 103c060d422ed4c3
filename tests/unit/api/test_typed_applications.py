"""Applications pass `mypy --strict`, and streams know the types of their messages.

One run of mypy checks everything; Drivetrain is found as an installed package is, so `py.typed` counts.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "drivetrain"

APPLICATION = """
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drivetrain import (
    Application, F, NamedOutput, PersistentTask, RunResult, State, Stream, Task, TaskContext,
    TimestampedValue, accumulator, agg, col, expr, lit, partitioners, published_files, run, savepoint,
    sinks, sources, start, state, windows,
)

@dataclass(frozen=True)
class Sale:
    item: str
    price: float

def words(line: str) -> Iterator[str]:
    yield from line.split()

def sale(line: str) -> Sale:
    return Sale(line, 1.0)

def is_dear(sale: Sale) -> bool:
    return sale.price > 5

class Lengths(Task[str, int]):
    def on_start(self, context: TaskContext) -> None:
        self.index = context.index

    def on_next(self, message: str) -> Iterator[int | TimestampedValue[int]]:
        yield len(message)
        yield TimestampedValue(0, self.index)

class Long(Task[str, int]):
    outputs = {"long": str}

    def on_next(self, message: str) -> Iterator[int | TimestampedValue[int] | NamedOutput]:
        yield len(message)
        yield NamedOutput("long", message)

    def on_stop(self) -> list[TimestampedValue[NamedOutput]]:
        return [TimestampedValue(0, NamedOutput("long", "end"))]

class Totals(PersistentTask[Sale, tuple[str, float]]):
    key = "item"
    state = State(agg.sum("price"), as_of="1 h")

    def on_change(self, item: str, total: float) -> list[tuple[str, float]]:
        return [(item, total)]

app = Application("shop")
path = app.setting("input", "in/")
number = app.setting("number", 100)
share = app.setting("share", type=float)
key = app.setting("key", "${KEY}", secret=True)
lines = app.read(sources.text(path))
sales = lines.map(sale)
rows = app.read(sources.csv(path, schema=Sale))
table = app.table(sources.csv(path, schema="item string, kind string"))
hourly = sales.group_by("item").window(windows.tumbling("1 h"))
counted = accumulator("counted")
counted.add(1)

reveal_type(number)  #: int
reveal_type(share)  #: float
reveal_type(key)  #: Secret
reveal_type(lines)  #: Stream[str]
reveal_type(rows)  #: Stream[Any]
reveal_type(lines.map(len))  #: Stream[int]
reveal_type(sales)  #: Stream[Sale]
reveal_type(lines.flat_map(words))  #: Stream[str]
reveal_type(lines.flat_map(str.split, returns=str))  #: Stream[str]
reveal_type(rows.map(lambda row: row.item, returns=str))  #: Stream[str]
reveal_type(lines.map(lambda line: (line, 1), returns=tuple[str, int]))  #: Stream[tuple[str, int]]
reveal_type(sales.filter(is_dear))  #: Stream[Sale]
reveal_type(sales.filter(lambda sale: sale.price > 3))  #: Stream[Sale]
reveal_type(sales.filter("price > 3").filter(col("price") > 3))  #: Stream[Sale]
reveal_type(sales.select("item", euros="price / 100"))  #: Stream[Any]
reveal_type(sales.with_columns(double=col("price") * 2, one=lit(1)))  #: Stream[Any]
reveal_type(sales.event_time("at").deduplicate("item", within="1 h").log().cut())  #: Stream[Sale]
reveal_type(lines.process(Long))  #: Stream[int]
reveal_type(lines.process(Long).output("long"))  #: Stream[Any]
reveal_type(sales.sample(0.1, "item", seed=3))  #: Stream[Sale]
reveal_type(hourly.top(3, by="price"))  #: Stream[Any]
reveal_type(sales.union(rows, missing="null"))  #: Stream[Sale]
reveal_type(sales.union(rows))  #: Stream[Sale]
reveal_type(sales.join(table, on="item"))  #: Stream[Any]
reveal_type(hourly.count())  #: Stream[Any]
reveal_type(hourly.aggregate(n=agg.count(), mean=agg.mean("price")).late)  #: Stream[Any]
reveal_type(lines.process(Lengths, parallelism=2, partitioner=partitioners.hash("value")))  #: Stream[int]
reveal_type(lines.process(lambda: Lengths()))  #: Stream[int]
reveal_type(sales.process(Totals))  #: Stream[tuple[str, float]]
reveal_type(F.upper("item") == "A")  #: Column
reveal_type(1 + col("price") - 2 > expr("price"))  #: Column
reveal_type((col("a") > 1) & ~col("b").isNull() | (-col("c") != 0))  #: Column

def dear(stream: Stream[Any]) -> Stream[Any]:
    return stream.filter("price > 5")

@app.when_finished
def finished(result: RunResult) -> None:
    print(result.late, published_files("out/"))

def run_for_an_hour() -> RunResult:
    with start(app) as running:
        running.wait_clock("2024-01-01T01:00", timeout="1 min")
        state(app, "Totals").get("tea", at="2024-01-01T01:00")
        saved = savepoint(app, "saved/", timeout="1 min")
    return run(app, from_savepoint=saved)

dear(sales).sink(sinks.files(app.setting("output"), app.setting("format", "csv")))
"""
MISTAKES = """
sales.map(words)  #! arg-type
lines.flat_map(len)  #! arg-type
sales.filter(lambda sale: sale.prize > 3)  #! attr-defined
lines.map(len, returns=str)  #! arg-type
sales.process(Lengths)  #! arg-type
sales.sink(sources.text("out/"))  #! arg-type
lines.log(limit="all")  #! arg-type
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("typed")
    (folder / "shop.py").write_text(APPLICATION)
    (folder / "mistakes.py").write_text(APPLICATION + MISTAKES)
    # What mypy knows of the package is kept: only what has changed since the last run is checked again.
    cache = ROOT / "build" / "mypy-of-applications"
    options = ["--strict", "--config-file=", f"--cache-dir={cache}", "--disable-error-code=import-untyped"]
    files = [
        str(folder / "shop.py"),
        str(folder / "mistakes.py"),
        *map(str, (ROOT / "examples").glob("*.py")),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


def test_applications_and_examples_pass_mypy_strict(said: list[str]) -> None:
    assert [line for line in said if "error:" in line and not line.startswith("mistakes.py")] == []


def test_streams_know_the_types_of_their_messages(said: list[str]) -> None:
    lines = enumerate(APPLICATION.splitlines(), 1)
    expected = {n: line.split("#: ")[1] for n, line in lines if "#: " in line}
    notes = [re.match(r'shop\.py:(\d+): note: Revealed type is "(.*)"', line) for line in said]
    found = {int(note[1]): re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", note[2]) for note in notes if note}
    assert found == expected
    assert len(expected) > 20


def test_a_wrong_function_is_found_by_mypy(said: list[str]) -> None:
    lines = enumerate((APPLICATION + MISTAKES).splitlines(), 1)
    expected = {(n, line.split("#! ")[1]) for n, line in lines if "#! " in line}
    errors = [re.match(r"mistakes\.py:(\d+): error: .*\[(.*)\]", line) for line in said]
    assert {(int(error[1]), error[2]) for error in errors if error} == expected


def test_every_file_of_the_package_is_shipped() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["drivetrain"]
    found = [
        path
        for pattern in patterns
        for path in PACKAGE.glob(f"{pattern}/*" if pattern.endswith("**") else pattern)
    ]
    shipped = {str(path.relative_to(PACKAGE)) for path in found if path.is_file()}
    files = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.*") if path.is_file()}
    assert {file for file in files if not file.endswith((".py", ".pyc"))} == shipped
    assert "py.typed" in shipped
