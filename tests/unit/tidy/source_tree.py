"""The package's modules as parsed files, for the tests of the house rules."""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from prose import prose_of

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "drivetrain"

PROGRAMS = {
    "drivetrain.spark.run.warm_up_application",
    "drivetrain.spark.session.fork_client",
    "drivetrain.spark.session.fork_server",
    "drivetrain.spark.session.worker_daemon",
    "drivetrain.cluster.worker.orphans",
    "drivetrain.cli.inspection.state_process",
    "drivetrain.cli.changes.change_process",
    "drivetrain.console.planning.program",
}
"""Modules that are run, not imported."""


@dataclass(frozen=True)
class Module:
    """One module: its dotted name, file, text and tree."""

    name: str
    file: Path
    text: str
    tree: ast.Module

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.tree) or ""

    @property
    def is_package(self) -> bool:
        return self.file.name == "__init__.py"

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree: most rules look at each."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def prose(self) -> tuple[tuple[int, str], ...]:
        """Its docstrings and comments, each with its line."""
        return tuple(prose_of(self.text, self.nodes))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


@cache
def modules() -> dict[str, Module]:
    """Every module of the package, by dotted name."""
    found = {}
    gc.disable()  # it would walk all trees again and again while they grow, and none is garbage
    try:
        for file in sorted(PACKAGE.rglob("*.py")):
            parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = file.read_text()
            found[name] = Module(name, file, text, ast.parse(text))
            _ = found[name].nodes
    finally:
        gc.freeze()
        gc.enable()
    return found


@cache
def imports() -> dict[str, frozenset[str]]:
    """The modules of the package that each one imports, including imports in functions and under
    TYPE_CHECKING."""
    known = modules()
    return {name: frozenset(_imported(module, known)) for name, module in known.items()}


def _imported(module: Module, known: dict[str, Module]) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        else:
            continue
        for name in wanted:
            while name and name not in known:
                name = name.rpartition(".")[0]
            if name and name != module.name:
                yield name


def circles() -> list[list[str]]:
    """The modules that import each other, directly or through others."""
    return circles_of(imports())


def folder_circles() -> dict[str, set[str]]:
    """By package, its subpackages and modules that import each other, each with everything in it."""
    graphs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, others in imports().items():
        for other in others:
            mine, its = name.split("."), other.split(".")
            shared = next((i for i, (a, b) in enumerate(zip(mine, its, strict=False)) if a != b), 0)
            if shared:
                graph = graphs[".".join(mine[:shared])]
                graph[mine[shared]].add(its[shared])
                graph[its[shared]].update()
    found = {package: set().union(*circles_of(graph)) for package, graph in graphs.items()}
    return {package: names for package, names in found.items() if names}


def circles_of(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The strongly connected parts of a graph that have several nodes (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            part = []
            while not part or part[-1] != name:
                part.append(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    for name in list(graph):
        if name not in index:
            visit(name)
    return found
