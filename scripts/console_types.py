"""Writes the types of the console's answers for the dashboard, from the structs that make them.

The dashboard's modules are checked by `tsc` against these types; a test compares the file with the structs.

    .venv/bin/python scripts/console_types.py
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import types
import typing
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src" / "drivetrain" / "console" / "web" / "lib" / "answers.d.ts"
HEADER = "// The console's answers as types. Written by scripts/console_types.py; do not edit.\n"
PICTURES = ("drivetrain.core.picture.placed_graph", "drivetrain.core.picture.compared_graph")
PLAIN = {
    int: "number",
    float: "number",
    str: "string",
    bool: "boolean",
    type(None): "null",
    object: "unknown",
}


def written() -> str:
    """The types of all answers, by module and name."""
    return HEADER + "".join(f"\n{interface(struct)}" for struct in structs())


def structs() -> list[type[msgspec.Struct]]:
    """The structs of `console.answers` and of the graphs in them, in the order of modules and lines."""
    package = importlib.import_module("drivetrain.console.answers")
    modules = pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    found = []
    for name in (*sorted(module.name for module in modules), *PICTURES):
        members = vars(importlib.import_module(name)).values()
        found += [
            m
            for m in members
            if inspect.isclass(m) and m.__module__ == name and issubclass(m, msgspec.Struct)
        ]
    return found


def interface(struct: type[msgspec.Struct]) -> str:
    """A struct as an interface of TypeScript; what is left out when it is the default may be absent."""
    hints = typing.get_type_hints(struct)
    config = struct.__struct_config__
    lines = []
    for field in msgspec.structs.fields(struct):
        absent = config.omit_defaults and not field.required
        lines.append(f"  {field.encode_name}{'?' if absent else ''}: {spelled(hints[field.name])};")
    return "\n".join([f"export interface {struct.__name__} {{", *lines, "}", ""])


def spelled(hint: object) -> str:
    """A type as TypeScript writes it."""
    origin, given = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any:
        return "unknown"
    if origin is typing.Literal:
        return " | ".join(f'"{value}"' for value in given)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(spelled(one) for one in given)
    if origin in (tuple, list):
        if len(given) == 2 and given[1] is not Ellipsis:
            return f"[{', '.join(spelled(one) for one in given)}]"
        inner = spelled(given[0])
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if origin is dict:
        return f"Record<string, {spelled(given[1])}>"
    if inspect.isclass(hint) and issubclass(hint, msgspec.Struct):
        return hint.__name__
    return PLAIN[hint]  # type: ignore[index]


if __name__ == "__main__":
    TARGET.write_text(written(), encoding="utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)}: {len(structs())} types\n")
