"""The house rules of CONTRIBUTING.md that a program can check. The lists of exceptions only get shorter."""

from __future__ import annotations

import tomllib
from collections import defaultdict

from source_tree import PROGRAMS, ROOT, circles, circles_of, folder_circles, imports, modules

MOST_LINES = 400
MOST_FUNCTION_LINES = 60
LONGER_FUNCTIONS = {"drivetrain.api.connectors.kafka.kafka": 80}  # a long list of documented options

FOR_USERS = {"drivetrain.core.job.splits", "drivetrain.testing.pytest_plugin"}
"""Modules for programs that users write; examples, benchmarks and tests use them."""


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


FOLDERS_IN_CIRCLES = {
    "drivetrain": {"connectors", "spark"},  # layers inside spark, by a contract of their own
}
"""Packages and modules side by side that still import each other. The list only gets shorter."""


def test_circles_are_found_and_chains_are_none() -> None:
    assert circles_of({"a": ["b"], "b": ["c"], "c": [], "d": ["b"]}) == []
    assert circles_of({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"], "e": ["f"], "f": ["e"]}) == [
        ["a", "b", "c"],
        ["e", "f"],
    ]


def test_imports_of_folders_make_no_circle() -> None:
    """A folder that imports its neighbour, and is imported by it, cannot be understood without it."""
    assert folder_circles() == FOLDERS_IN_CIRCLES


def test_every_module_is_imported_or_run() -> None:
    used = set().union(*imports().values())
    unused = [
        name
        for name, module in modules().items()
        if not module.is_package and not name.endswith("__main__") and name not in used | PROGRAMS | FOR_USERS
    ]
    assert unused == []


def test_the_contract_about_spark_in_a_cluster_names_all_but_executors() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = next(
        c["source_modules"] for c in contracts if c["name"] == "in a cluster only executors need Spark"
    )
    parts = {".".join(name.split(".")[:3]) for name in modules() if name.startswith("drivetrain.cluster.")}
    assert set(named) == parts - {"drivetrain.cluster.executor"}


def test_the_contract_inside_spark_names_all_its_folders() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["name"] == "inside spark, imports point down")
    named = {folder.strip() for layer in layers for folder in layer.split("|")}
    folders = {".".join(name.split(".")[:3]) for name in modules() if name.startswith("drivetrain.spark.")}
    assert named == folders | {"drivetrain.connectors"}


MIRRORED = (
    "config.catalog",
    "console.answers",
    "console.handlers",
    "console.routes",
    "cluster.messages",
    "api",
    "cli",
)
"""Packages whose modules are named after what they declare, answer or start."""
SEVERAL = {"source", "connector"}
"""Base names that several modules still have. The list only gets shorter."""


def test_base_names_are_unique() -> None:
    """A stack trace shows base names first: each says where one is."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, module in modules().items():
        place = name.removeprefix("drivetrain.")
        if not module.is_package and not place.startswith(tuple(f"{package}." for package in MIRRORED)):
            found[place.rpartition(".")[2]].append(place)
    several = {base: places for base, places in found.items() if len(places) > 1 and base != "__main__"}
    assert {base: places for base, places in several.items() if base not in SEVERAL} == {}
    assert several.keys() >= SEVERAL, "take them off the list"


def test_no_base_name_says_nothing() -> None:
    vague = {"utils", "helpers", "common", "misc", "manager", "stuff", "base"}
    assert [name for name in modules() if name.rpartition(".")[2] in vague] == []
