"""What docstrings and documents name exists: modules, their callers, functions, classes, parameters."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache

import pytest
from source_tree import PACKAGE, PROGRAMS, ROOT, Module, imports, modules

from drivetrain.config import ALL_KEYS

SEPARATE = PROGRAMS | {"drivetrain.cli.checks.warm_up", "drivetrain.cluster.master.workers.scheduler"}
"""Modules whose callers start them as programs, load them by name, or send them messages."""

# From the names of files: every process of a run collects the tests, and one parses the package.
PACKAGE_NAMES = sorted(
    {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in PACKAGE.rglob("*.py")} - {"__init__"}
)


@pytest.mark.parametrize("package", PACKAGE_NAMES)
def test_modules_named_in_docstrings_exist(package: str) -> None:
    """A dotted name in backticks that begins with a package of ours is a module, or something in one."""
    stale = []
    for module in modules().values():
        names = re.findall(rf"`((?:drivetrain\.)?{package}(?:\.[A-Za-z_]+)+)(?:\(\))?`", module.text)
        stale += [f"{module.name}: {n}" for n in names if not _exists(n.removeprefix("drivetrain."))]
    assert stale == []


def test_called_by_names_real_callers() -> None:
    """What a docstring names after "Called by" exists, and every module among it imports this one."""
    wrong = []
    for module in modules().values():
        said = re.search(r"^Called by(.*?)(?:\n\n|\Z|\. [A-Z])", module.doc, re.DOTALL | re.MULTILINE)
        by_message = "(`" in module.doc or module.name in SEPARATE
        for name in re.findall(r"`([A-Za-z_.]+)`", said[1] if said else ""):
            called = [n for n in modules() if f".{n}".endswith(f".{name}")]
            if not called and name.rpartition(".")[2] not in _defined_names():
                wrong.append(f"{module.name}: {name} does not exist")
            elif called and not by_message and not any(_reaches(c, module.name) for c in called):
                wrong.append(f"{module.name}: {name} does not import it")
    assert wrong == []


def _reaches(caller: str, called: str) -> bool:
    """Whether a module, or one in a package, imports another module, its package, or what that re-exports."""
    first = {m for n in modules() if f"{n}.".startswith(f"{caller}.") for m in imports()[n]}
    return called in first or any(called in imports()[name] for name in first if modules()[name].is_package)


@cache
def _defined_names() -> frozenset[str]:
    """The names of the package's functions, methods, classes and attributes."""
    found = set()
    for module in modules().values():
        for node in module.nodes:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.Attribute(attr=name, ctx=ast.Store()):
                    found.add(name)
    return frozenset(found)


NAMES_OF_OTHERS = {
    *("ChecksumFileSystem", "MavenUtils", "OptionalDataException", "Py4JNetworkError", "RawLocalFileSystem"),
    *("availableNow", "processingTime", "toArrow", "await", "oneof", "Referer", "_per_s", "sales"),
}
"""Names of Spark, Java, Python, formats and examples that docstrings explain and the code does not use."""


def test_names_in_docstrings_exist() -> None:
    """A name in backticks is a name of the package, of Python, or part of a text that the code has."""
    known = {word for module in modules().values() for word in _words_of_code(module)}
    known |= {*dir(builtins), *NAMES_OF_OTHERS}
    stale = [
        f"{module.name}:{line}: {name}"
        for module in modules().values()
        for line, text in module.prose
        for name in re.findall(r"(?<!`)`([A-Za-z_]\w*)(?:\(\))?`(?!`)", text)
        if name not in known
    ]
    assert stale == []


def _words_of_code(module: Module) -> Iterator[str]:
    """The words of a module's name, and of its text without docstrings and comments."""
    yield from module.name.split(".")
    prose = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
    for node in module.nodes:
        match node:
            case (
                ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name))
            ):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield from name.split(".")
                yield other or ""
            case ast.MatchClass(kwd_attrs=names):
                yield from names
            case ast.Constant(value=str(text)) if id(node) not in prose:
                yield from re.findall(r"\w+", text)


def test_the_words_of_code_leave_docstrings_out() -> None:
    text = '"""Uses `gone`."""\n\nLIMIT = read("key-word")  # `lost`\n'
    words = set(_words_of_code(Module("a.room", ROOT, text, ast.parse(text))))
    assert words == {"a", "room", "LIMIT", "read", "key", "word"}


def test_modules_named_in_documents_exist() -> None:
    stale = []
    for page in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "decisions").glob("*.md"),
    ]:
        names = re.findall(r"`((?:core|spark|runtime|connectors)(?:\.[a-z_]+)+)`", page.read_text())
        stale += [f"{page.name}: {name}" for name in names if not _exists(name)]
    assert stale == []


def _exists(name: str) -> bool:
    if name in NOT_MODULES or (name.startswith("spark.") and name.split(".")[1] in SPARKS):
        return True
    dotted = f"drivetrain.{name}"
    if dotted in modules():
        return True
    parent, _, last = dotted.rpartition(".")
    while parent and parent not in modules():
        parent, _, last = parent.rpartition(".")
    return parent != "drivetrain" and bool(re.search(rf"\b{last}\b", modules()[parent].text))


NOT_MODULES = set(ALL_KEYS)
"""Configuration keys look like modules."""
SPARKS = {
    "python",
    "sql",
    "jars",
    "driver",
    "conf",
    "master",
    "watermarkDelayMs",
    "readStream",
    "local",
    "dataSource",
}
"""What of Spark's own settings is named in docstrings."""


def test_the_picture_of_a_batch_has_the_steps_and_modules_of_the_architecture() -> None:
    picture = (ROOT / "docs" / "images" / "batch.svg").read_text()
    shown = re.findall(r">(\d)  ([a-z ]+)</text><text class=\"module\"[^>]*>([^<]+)<", picture)
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## One batch")[2]
    rows = re.findall(r"^\| ([a-z ]+) \| (`.*?) \|", text.partition("\n## ")[0], re.MULTILINE)
    assert [(int(number), step) for number, step, _ in shown] == list(
        enumerate((s for s, _ in rows), start=1)
    )
    for (_, step, named), (_, described) in zip(shown, rows, strict=True):
        for module in named.split(", "):
            assert re.search(rf"[`.]{re.escape(module)}`", described), f"{step}: {module}"
