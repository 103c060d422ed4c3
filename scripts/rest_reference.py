"""Writes the reference of the console's requests, `docs/guide/rest.md`, from its table of routes.

A test compares the page with the table.

    .venv/bin/python scripts/rest_reference.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drivetrain.console import openapi
from drivetrain.console.access.roles import Role
from drivetrain.console.route import V1
from drivetrain.console.routes.table import ROUTES

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "guide" / "rest.md"
HEADER = """\
<!-- Written by scripts/rest_reference.py from the table of routes; do not edit. -->

# REST reference

All requests of [the console](console.md), which explains them. `/api/v1/openapi.json` has the same for
programs. Every request may also be answered with a [problem](console.md#errors); those with a meaning of
their own are named here. Roles are those of [users and tokens](console.md#users-tokens-and-roles): each
may do what the ones before it may.

Of types: `?` follows what may be null, `[]` a list, and `{}` an object with names of its own as keys.
"""
GROUPS = {
    "The console": lambda path: (
        not path.startswith((f"{V1}/applications", f"{V1}/plans"))
        and path.removeprefix(V1).split("/")[1]
        not in ("cluster", "masters", "workers", "calls", "operations")
    ),
    "The cluster": lambda path: path.removeprefix(V1).split("/")[1] in ("cluster", "masters", "workers"),
    "Applications": lambda path: path.startswith((f"{V1}/applications", f"{V1}/plans")),
    "Operations and clients": lambda path: path.removeprefix(V1).split("/")[1] in ("calls", "operations"),
}
PLAIN = {"integer": "integer", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}


def written() -> str:
    """The page."""
    document = json.loads(openapi.document(ROUTES, "", "cookie"))
    parts = [HEADER]
    for title, belongs in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += (request(document, path, method) for path, method in operations(document) if belongs(path))
    parts.append("## What is sent and answered\n")
    schemas = document["components"]["schemas"]
    parts += (struct(name, schemas[name]) for name in sorted(schemas))
    return "\n".join(parts)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The requests in the order of the table."""
    for path, methods in document["paths"].items():
        for method in methods:
            yield path, method


def request(document: dict[str, Any], path: str, method: str) -> str:
    """The part about one request."""
    asked = document["paths"][path][method]
    role = next(route.role for route in ROUTES if (route.path, route.method.lower()) == (path, method))
    who = "Anyone may." if role is Role.NOBODY else f"Role: {role.shown}."
    lines = [f"### `{method.upper()} {path}`\n", f"{asked['summary']} {who}\n"]
    if "requestBody" in asked:
        lines.append(f"Body: {content(asked['requestBody']['content'])}.\n")
    parameters = [one for one in asked["parameters"] if one["in"] != "path"]
    if parameters:
        lines += ["| parameter | in | type | |", "|---|---|---|---|"]
        for one in parameters:
            name = f"`{one['name']}`" + (" (required)" if one["required"] else "")
            lines.append(f"| {name} | {one['in']} | {type_of(one['schema'])} | {cell(one['description'])} |")
        lines.append("")
    answers, problems = [], []
    for status, answer in asked["responses"].items():
        if "application/problem+json" not in answer["content"]:
            answers.append(f"{status} with {content(answer['content'])}")
        elif status != "default":
            problems.append(status)
    of_its_own = f" Problems: {', '.join(problems)}." if problems else ""
    lines.append(f"Answer: {', '.join(answers)}.{of_its_own}\n")
    return "\n".join(lines)


def content(found: dict[str, Any]) -> str:
    """What a body is: the name of its struct, or its media types."""
    if "application/json" in found and "schema" in found["application/json"]:
        return type_of(found["application/json"]["schema"])
    return " or ".join(f"`{media}`" for media in found)


def struct(name: str, schema: dict[str, Any]) -> str:
    """The part about what is sent or answered as JSON."""
    lines = [f"### {name}\n", escaped(schema.get("description", "")) + "\n"]
    if "enum" in schema:
        lines.append("One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".\n")
    if schema.get("properties"):
        lines += ["| field | type |", "|---|---|"]
        lines += (f"| `{field}` | {type_of(of)} |" for field, of in schema["properties"].items())
        lines.append("")
    return "\n".join(lines)


def type_of(schema: dict[str, Any]) -> str:
    """A type in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        kinds = [type_of(one) for one in schema["anyOf"] if one != {"type": "null"}]
        return " or ".join(kinds) + ("?" if {"type": "null"} in schema["anyOf"] else "")
    if "enum" in schema:
        return " or ".join("null" if value is None else f"`{value}`" for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        if "prefixItems" in schema:
            return "[" + ", ".join(type_of(one) for one in schema["prefixItems"]) + "]"
        return f"{type_of(schema.get('items') or {})}[]"
    if kind == "object":
        return f"{type_of(schema.get('additionalProperties') or {})}{{}}"
    return PLAIN.get(kind or "", "any")


def escaped(text: str) -> str:
    """A description as Markdown: on one line for each paragraph, so that no line break is one of the page."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text))


def cell(text: str) -> str:
    """A description in a table."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(written(), encoding="utf-8")
