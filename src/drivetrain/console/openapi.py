"""The OpenAPI 3.1 document of the console, made from the table of routes.

Design: schemas come from the structs, descriptions from their docstrings, so the document cannot disagree
with the server. msgspec writes JSON Schema 2020-12, which OpenAPI 3.1 uses.

Called by `console.server`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from drivetrain.console.access.roles import Role
from drivetrain.console.answers.problem import Problem
from drivetrain.console.route import Route
from drivetrain.version import VERSION

_REFERENCE: Final = "#/components/schemas/{name}"
_REASONS: Final = {200: "Done.", 201: "Made.", 202: "Begun: see the operation.", 303: "Elsewhere."}


def document(routes: Sequence[Route], prefix: str, cookie: str) -> bytes:
    """The document as JSON; `prefix` is the path under which a proxy shows the console, or empty;
    `cookie` is the name of the cookie that signing in sets.
    """
    components = _components(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, components)
    for query in {route.query.__name__ for route in routes}:
        components.pop(query, None)
    specification = {
        "openapi": "3.1.0",
        "info": {
            "title": "Drivetrain console",
            "version": VERSION,
            "description": "The console of a Drivetrain cluster.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": prefix or "/"}],
        "security": [{"token": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token of the console."},
                "cookie": {"type": "apiKey", "in": "cookie", "name": cookie},
            },
        },
    }
    return msgspec.json.encode(specification)


def _components(routes: Iterable[Route]) -> dict[str, Any]:
    structs: dict[str, type[msgspec.Struct]] = {Problem.__name__: Problem}
    for route in routes:
        for struct in (route.answer, route.query, route.body):
            if isinstance(struct, type):
                structs[struct.__name__] = struct
    _, components = msgspec.json.schema_components(structs.values(), ref_template=_REFERENCE)
    return components


def _operation(route: Route, components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": f"The caller needs the role {route.role.shown}, or a higher one.",
        "parameters": [*_path_parameters(route), *_query_parameters(route, components), *_headers(route)],
        "responses": _responses(route),
    }
    if route.role is Role.NOBODY:
        operation["description"] = "Anyone may."
        operation["security"] = []
    if isinstance(route.body, str):
        taken: dict[str, Any] = {media.strip(): {} for media in route.body.split(",")}
        operation["requestBody"] = {"required": True, "content": taken}
    elif route.body is not None:
        schema = {"$ref": _REFERENCE.format(name=route.body.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in route.path_parameters
    ]


def _query_parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    schema = components[route.query.__name__]
    parameters = []
    for name, found in schema.get("properties", {}).items():
        described = dict(found)
        described.pop("default", None)
        parameters.append(
            {
                "name": name,
                "in": "query",
                "required": name in schema.get("required", ()),
                "description": described.pop("description", ""),
                "schema": _of_text(described),
            }
        )
    return parameters


def _of_text(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter, which cannot be null: a query leaves absent values out."""
    alternatives = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if "anyOf" in schema and len(alternatives) == 1:
        return {**{key: value for key, value in schema.items() if key != "anyOf"}, **alternatives[0]}
    return schema


def _headers(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": says, "schema": {"type": "string"}}
        for name, says in route.headers.items()
    ]


def _responses(route: Route) -> dict[str, Any]:
    if isinstance(route.answer, str):
        is_text = route.answer.startswith("text/")
        content: dict[str, Any] = {route.answer: {"schema": {"type": "string"}} if is_text else {}}
    else:
        content = {"application/json": {"schema": {"$ref": _REFERENCE.format(name=route.answer.__name__)}}}
    problem = {"application/problem+json": {"schema": {"$ref": _REFERENCE.format(name=Problem.__name__)}}}
    responses: dict[str, Any] = {
        str(status): {"description": _REASONS[status], "content": content} for status in route.statuses
    }
    for status in sorted(route.problems):
        responses[str(status)] = {"description": "See the problem's code.", "content": problem}
    responses["default"] = {"description": "A problem.", "content": problem}
    return responses
