"""The house rules of CONTRIBUTING.md that a program can check. The lists of exceptions only get shorter."""

from __future__ import annotations

import re
from functools import cache

import pytest
from source_tree import PACKAGE, ROOT, Module, circles, imports, modules

from drivetrain.config import ALL_KEYS

MOST_LINES = 400
MOST_FUNCTION_LINES = 60
LONGER_FUNCTIONS = {"drivetrain.api.kafka.kafka": 80}  # a long list of documented options

FOR_USERS = {"drivetrain.core.job.splits", "drivetrain.testing.pytest_plugin"}
"""Modules for programs that users write; examples, benchmarks and tests use them."""

PROGRAMS = {
    "drivetrain.spark.run.warm_up_application",
    "drivetrain.spark.session.fork_client",
    "drivetrain.spark.session.fork_server",
    "drivetrain.cluster.worker.orphans",
    "drivetrain.cli.state_process",
    "drivetrain.cli.change_process",
    "drivetrain.console.planning.program",
}
"""Modules that are run, not imported."""

SEPARATE = PROGRAMS | {"drivetrain.cli.warm_up", "drivetrain.cluster.master.workers.scheduler"}
"""Modules whose callers start them as programs, load them by name, or send them messages."""

# From the names of files: every process of a run collects the tests, and one parses the package.
PACKAGE_NAMES = sorted(
    {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in PACKAGE.rglob("*.py")} - {"__init__"}
)


def of_module(name: str) -> Module:
    return modules()[name]


def test_no_module_is_longer_than_a_room() -> None:
    lengths = {name: len(module.text.splitlines()) for name, module in modules().items()}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_every_function_fits_a_screen() -> None:
    found = {}
    for name, module in modules().items():
        for function in module.functions():
            lines = (function.end_lineno or 0) - function.lineno + 1
            id = f"{name}.{function.name}"
            if lines > LONGER_FUNCTIONS.get(id, MOST_FUNCTION_LINES):
                found[id] = lines
    assert found == {}


def test_imports_make_no_circle() -> None:
    """Not even of types: modules that name each other are one module in several files."""
    assert circles() == []


def test_every_module_is_imported_or_run() -> None:
    used = set().union(*imports().values())
    unused = [
        name
        for name, module in modules().items()
        if not module.is_package and not name.endswith("__main__") and name not in used | PROGRAMS | FOR_USERS
    ]
    assert unused == []


@pytest.mark.parametrize("package", PACKAGE_NAMES)
def test_modules_named_in_docstrings_exist(package: str) -> None:
    """A dotted name in backticks that begins with a package of ours is a module, or something in one."""
    stale = []
    for module in modules().values():
        names = re.findall(rf"`((?:drivetrain\.)?{package}(?:\.[A-Za-z_]+)+)(?:\(\))?`", module.text)
        stale += [f"{module.name}: {n}" for n in names if not _exists(n.removeprefix("drivetrain."))]
    assert stale == []


def test_called_by_names_real_callers() -> None:
    """Of the modules that a docstring names after "Called by", each exists and one imports this module."""
    wrong = []
    for module in modules().values():
        said = re.search(r"^Called by(.*?)(?:\n\n|\Z|\. [A-Z])", module.doc, re.DOTALL | re.MULTILINE)
        named = re.findall(r"`([a-z_.]+)`", said[1] if said else "")
        found = {
            name: [n for n in modules() if n == f"drivetrain.{name}" or n.endswith(f".{name}")]
            for name in named
        }
        for name, callers in found.items():
            if not callers and not re.search(rf"\b{name.rpartition('.')[2]}\b", _all_text()):
                wrong.append(f"{module.name}: {name} does not exist")
        callers = [
            n for called in found.values() for c in called for n in modules() if f"{n}.".startswith(f"{c}.")
        ]
        by_message = "(`" in module.doc or module.name in SEPARATE
        if callers and not by_message and not any(_reaches(caller, module.name) for caller in callers):
            wrong.append(f"{module.name}: {', '.join(found)}")
    assert wrong == []


def _reaches(caller: str, called: str) -> bool:
    """Whether a module imports another one, its package, or what that re-exports."""
    first = imports()[caller]
    return called in first or any(called in imports()[name] for name in first)


@cache
def _all_text() -> str:
    return "\n".join(module.text.partition('"""')[2].partition('"""')[2] for module in modules().values())


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


def test_no_base_name_says_nothing() -> None:
    vague = {"utils", "helpers", "common", "misc", "manager", "stuff", "base"}
    assert [name for name in modules() if name.rpartition(".")[2] in vague] == []
