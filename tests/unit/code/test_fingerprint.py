"""What a processor does has changed, or only how it is written."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from drivetrain import Application
from drivetrain.code.application_file import load_application
from drivetrain.code.fingerprint import fingerprint

HEAD = """
from __future__ import annotations
import functools
import math
from dataclasses import dataclass
from drivetrain import Application, F, Task, agg, col, sinks, sources, windows

{}

app = Application("shop")
read = app.read(sources.items([(1, "a")], schema="n bigint, key string"), name="read")
read.{}.sink(sinks.none(), name="out")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def prints(folder: Path, code: str, step: str, name: str = "shop") -> dict[str, str]:
    file = folder / f"{name}.py"
    file.write_text(HEAD.format(textwrap.dedent(code), step))
    app: Application = load_application(str(file), {})
    return {id: fingerprint(node.operation) for id, node in app.graph().nodes.items()}


USES_B = "class T(Task):\n    output = 'n bigint'\n    def on_next(self, m): yield (B().k,)"

SAME: list[tuple[str, str, str]] = [
    (
        "def f(n):\n    return n + 1",
        "# a comment\n\n\ndef f(n):\n    # another\n    return n + 1",
        "map(f, returns='bigint', name='step')",
    ),
    (
        "LIMIT = 5\ndef f(n): return n > LIMIT",
        "OTHER = 1\nLIMIT = 5\ndef f(n): return n > LIMIT",
        "filter(f, name='step')",
    ),
    ("f = lambda n: n * 2", "f = (\n    lambda n: n * 2\n)", "map(f, returns='bigint', name='step')"),
    ("f = col('n') > 5", "f = (col('n') > 5)", "filter(f, name='step')"),
    ("f = {'x': 'a', 'y': 'b'}", "f = {'x': 'a', 'y': 'b'}", "select(step='step', **f)"),
]
CHANGED: list[tuple[str, str, str]] = [
    ("def f(n): return n + 1", "def f(n): return n + 2", "map(f, returns='bigint', name='step')"),
    ("def f(n): return n + 1", "def f(n): return n - 1", "map(f, returns='bigint', name='step')"),
    (
        "LIMIT = 5\ndef f(n): return n > LIMIT",
        "LIMIT = 6\ndef f(n): return n > LIMIT",
        "filter(f, name='step')",
    ),
    (
        "def g(n): return n\ndef f(n): return g(n)",
        "def g(n): return -n\ndef f(n): return g(n)",
        "map(f, returns='bigint', name='step')",
    ),
    (
        "def g(n): return n\ndef f(n): return [g(x) for x in (n,)][0]",
        "def g(n): return -n\ndef f(n): return [g(x) for x in (n,)][0]",
        "map(f, returns='bigint', name='step')",
    ),
    (
        "def make(k):\n    return lambda n: n * k\nf = make(2)",
        "def make(k):\n    return lambda n: n * k\nf = make(3)",
        "map(f, returns='bigint', name='step')",
    ),
    (
        "f = functools.partial(pow, 2)",
        "f = functools.partial(pow, 3)",
        "map(lambda n: f(n), returns='bigint', name='step')",
    ),
    ("def f(n, k=1): return n", "def f(n, k=2): return n", "map(f, returns='bigint', name='step')"),
    ("f = col('n') > 5", "f = col('n') > 6", "filter(f, name='step')"),
    ("f = col('n') > 5", "f = col('n') >= 5", "filter(f, name='step')"),
    (
        "class T(Task):\n    output = 'n bigint'\n    def on_next(self, m): yield (m.n,)",
        "class T(Task):\n    output = 'n bigint'\n    def on_next(self, m): yield (m.n + 1,)",
        "process(T, name='step')",
    ),
    (
        "class B:\n    k = 1\n" + USES_B,
        "class B:\n    k = 2\n" + USES_B,
        "process(T, name='step')",
    ),
]


@pytest.mark.parametrize(("before", "after", "step"), SAME)
def test_how_it_is_written_does_not_count(folder: Path, before: str, after: str, step: str) -> None:
    assert prints(folder, before, step) == prints(folder, after, step)


@pytest.mark.parametrize(("before", "after", "step"), CHANGED)
def test_what_it_does_counts_and_is_that_processors_alone(
    folder: Path, before: str, after: str, step: str
) -> None:
    old, new = prints(folder, before, step), prints(folder, after, step)
    assert [id for id in old if old[id] != new[id]] == ["step"]


def test_the_name_of_the_file_does_not_count(folder: Path) -> None:
    code = "def g(n): return n\ndef f(n): return g(n)"
    step = "map(f, returns='bigint', name='step')"
    assert prints(folder, code, step) == prints(folder, code, step, name="renamed")


def test_every_process_comes_to_the_same(folder: Path) -> None:
    """Hashes of text differ between processes, and so does the order of sets."""
    (folder / "app.py").write_text(
        "NAMES = {'a', 'b', 'c', 'd'}\ndef f(n): return n in NAMES or n in {'x', 'y', 'z'}\n"
        "class K:\n    def __init__(self): self.k = NAMES\n"
    )
    program = "import sys; sys.path.insert(0, '.'); import app\n"
    program += "from drivetrain.code.fingerprint import fingerprint\n"
    program += "print(fingerprint(app.f), fingerprint(app.K), fingerprint(app.K()))"
    told = {
        subprocess.run(
            [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(3)
    }
    assert len(told) == 1


def test_what_contains_itself_ends() -> None:
    def fact(n: int) -> int:
        return 1 if n == 0 else n * fact(n - 1)

    kept: list[Any] = [fact]
    kept.append(kept)
    assert fingerprint(kept) == fingerprint(kept)


def test_an_iterable_of_the_user_is_not_read() -> None:
    numbers = iter(range(3))
    fingerprint(numbers)
    assert list(numbers) == [0, 1, 2]


def test_what_is_used_many_times_is_looked_at_once() -> None:
    nested: list[Any] = []
    for _ in range(200):  # 2^200 ways to the innermost
        nested = [nested, nested]
    assert fingerprint(nested) == fingerprint(nested)
