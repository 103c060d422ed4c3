"""Finds the names that the package defines, and those that nothing uses.

A name is a function, a class, a method or a constant of a module. It is used if any other place of the
package, of the examples, the benchmarks, or a program in the documentation mentions it: as a name, an
attribute, an import (not one that only exports it again), a keyword, or as text for `getattr`; for a private
name of a module, if any other place of that module does. Types are not considered: two methods of one name
hide each other. A name that only tests mention is unused.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from source_tree import ROOT, Module, modules

Function = ast.FunctionDef | ast.AsyncFunctionDef

EXPORTED = ("drivetrain", "drivetrain.actor", "drivetrain.api", "drivetrain.simulator", "drivetrain.testing")
"""Packages whose `__all__` is for users: the names in it count as used, with the public methods of those
classes."""

_BASES_THAT_CALL_NOTHING = {
    "Protocol",
    "Generic",
    "Exception",
    "Enum",
    "StrEnum",
    "NamedTuple",
    "ABC",
    "msgspec.Struct",
}


@dataclass(frozen=True)
class Defined:
    """A definition: `place` is `module.name` or `module.Class.name`."""

    name: str
    place: str
    node: ast.stmt
    is_of_module: bool


def unused() -> dict[str, int]:
    """The places of unused definitions, with their lines."""
    everywhere = _uses_in_package() + _uses_by_users()
    found = {}
    for module in modules().values():
        within = _uses_in_module(module.name, exports=False)
        for defined in _definitions(module):
            is_private = defined.is_of_module and defined.name.startswith("_")
            used = (within if is_private else everywhere)[defined.name]
            is_value = isinstance(defined.node, ast.Assign | ast.AnnAssign)
            if used <= (0 if is_value else uses_in(defined.node)[defined.name]):
                found[defined.place] = defined.node.lineno
    return found


def _definitions(module: Module) -> Iterator[Defined]:
    for node in module.tree.body:
        for name in _names_of(node):
            if not _is_special(name) and not _is_exported(name) and not _is_registered(node):
                yield Defined(name, f"{module.name}.{name}", node, True)
        if isinstance(node, ast.ClassDef) and not _overrides_others(node):
            yield from _methods(module, node)


def _methods(module: Module, cls: ast.ClassDef) -> Iterator[Defined]:
    for node in cls.body:
        if not isinstance(node, Function) or _is_special(node.name) or _is_registered(node):
            continue
        if node.name.startswith("_") or not _is_exported(cls.name):
            yield Defined(node.name, f"{module.name}.{cls.name}.{node.name}", node, False)


def _names_of(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _is_special(name: str) -> bool:
    """Whether Python calls a method of this name, or a notebook that shows the object."""
    if name in ("_repr_html_", "_repr_svg_", "_ipython_display_"):
        return True
    return name.startswith("__") and name.endswith("__")


def _is_registered(node: ast.stmt) -> bool:
    """Whether a decorator registers the function elsewhere: a command of the command line, an overload."""
    decorators = getattr(node, "decorator_list", [])
    return any(
        re.search(r"\.(command|callback|register|setter)\b|overload", ast.unparse(d)) for d in decorators
    )


@cache
def _exported() -> frozenset[str]:
    names = set()
    for package in EXPORTED:
        for node in modules()[package].tree.body:
            if "__all__" in _names_of(node):
                names |= {constant.value for constant in ast.walk(node) if isinstance(constant, ast.Constant)}
    return frozenset(names)


def _is_exported(name: str) -> bool:
    return name in _exported()


@cache
def _classes() -> dict[str, ast.ClassDef]:
    every = (node for module in modules().values() for node in module.nodes)
    return {node.name: node for node in every if isinstance(node, ast.ClassDef)}


def _overrides_others(cls: ast.ClassDef) -> bool:
    """Whether a class from outside the package, which may call its methods, is among its bases."""
    for base in cls.bases:
        name = ast.unparse(base).partition("[")[0]
        own = _classes().get(name)
        if (own is None and name not in _BASES_THAT_CALL_NOTHING) or (
            own is not None and _overrides_others(own)
        ):
            return True
    return False


@cache
def _uses_in_package() -> Counter[str]:
    found: Counter[str] = Counter()
    for name, module in modules().items():  # adding counters would copy what was found each time
        found.update(_uses_in_module(name, exports=module.is_package))
    return found


@cache
def _uses_in_module(name: str, *, exports: bool) -> Counter[str]:
    return _uses_of(modules()[name].nodes, exports)


@cache
def _uses_by_users() -> Counter[str]:
    said: Counter[str] = Counter()
    for folder in ("examples", "benchmarks", "scripts"):
        for file in (ROOT / folder).rglob("*.py"):
            said += uses_in(ast.parse(file.read_text()))
    for page in [ROOT / "README.md", *(ROOT / "docs" / "guide").glob("*.md")]:
        for program in re.findall(r"^```python.*?\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            said += Counter(re.findall(r"[A-Za-z_]\w*", program))
    return said


def uses_in(tree: ast.AST) -> Counter[str]:
    return _uses_of(ast.walk(tree))


def _uses_of(nodes: Iterable[ast.AST], exports: bool = False) -> Counter[str]:
    said: Counter[str] = Counter()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                said[name] += 1
            case ast.ImportFrom(names=names) if not exports:
                said.update(alias.name for alias in names)
            case ast.Constant(value=str(text)) if text.isidentifier() and not exports:
                said[text] += 1
            case ast.MatchClass(kwd_attrs=names):
                said.update(names)
    return said


def unused_parameters() -> list[str]:
    """Parameters of private functions that the function does not use."""
    return [
        f"{module.name}.{function.name}: {parameter}"
        for module in modules().values()
        for function in module.functions()
        if function.name.startswith("_") and not _is_special(function.name) and not _has_no_body(function)
        for parameter in _parameters(function)
        if not any(isinstance(n, ast.Name) and n.id == parameter for n in _inside(function))
    ]


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    every = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    names = [argument.arg for argument in every if argument is not None]
    return [name for name in names if name not in {"self", "cls"} and not name.startswith("_")]


def _inside(function: Function) -> Iterator[ast.AST]:
    for statement in function.body:
        yield from ast.walk(statement)


def _has_no_body(function: Function) -> bool:
    """Whether a function only declares what implementations do."""
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return not body or all(isinstance(s, ast.Raise | ast.Pass) for s in body)
