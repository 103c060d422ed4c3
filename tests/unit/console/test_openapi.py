"""The OpenAPI document: valid, complete, and kept by the answers, whatever is asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import schemathesis
from console_in_thread import ConsoleInThread, scripted
from hypothesis import HealthCheck, given, settings
from openapi_spec_validator import OpenAPIV31SpecValidator, validate
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from test_reading import running

from drivetrain.cluster.client.console_calls import MEDIA
from drivetrain.console.event_stream import MEDIA_TYPE
from drivetrain.console.routes.table import ROUTES
from nightly_run import examples

STREAMS = {route.name for route in ROUTES if route.answer == MEDIA_TYPE}
DEAR = {"getGraph", "planUpload", "submitUpload", "signIn"}
"""Each request starts a process or hashes a password, so fewer are made."""

CHECKS = (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)


@schemathesis.serializer(MEDIA)
def encoded(_context: Any, value: Any) -> bytes:
    """Bodies for the calls of clients."""
    return value if isinstance(value, bytes) else msgspec.msgpack.encode(value)


def test_the_document_is_valid_and_has_every_route(shared_console: ConsoleInThread) -> None:
    document = shared_console.client().get("/api/v1/openapi.json").json()
    validate(document, cls=OpenAPIV31SpecValidator)
    there = {
        (method.upper(), path): operation["operationId"]
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert there == {(route.method, route.path): route.name for route in ROUTES}
    assert len(set(there.values())) == len(ROUTES), "operation ids are unique"


def test_the_cookie_is_the_one_that_signing_in_sets(shared_console: ConsoleInThread) -> None:
    document = shared_console.client().get("/api/v1/openapi.json").json()
    http = shared_console.client()
    http.get(f"/?token={shared_console.token}")
    assert document["components"]["securitySchemes"]["cookie"]["name"] in http.cookies


def test_every_schema_is_described(shared_console: ConsoleInThread) -> None:
    schemas = shared_console.http.get("/api/v1/openapi.json").json()["components"]["schemas"]
    assert [name for name, schema in schemas.items() if not schema.get("description")] == []


@pytest.mark.parametrize("name", [route.name for route in ROUTES if route.name not in STREAMS])
def test_answers_keep_to_the_document_whatever_is_asked(shared_console: ConsoleInThread, name: str) -> None:
    running(shared_console)
    if not shared_console.world.workers:
        shared_console.cluster.worker("w1", {"executor-1": b"a line\n"})
    shared_console.world.put(scripted.world.view_of("wc-2"))
    schema = schemathesis.openapi.from_dict(shared_console.http.get("/api/v1/openapi.json").json())
    operation = next(
        found.ok()
        for found in schema.get_all_operations()
        if found.ok().definition.raw["operationId"] == name
    )
    headers = {"Authorization": f"Bearer {shared_console.token}"}

    @settings(
        max_examples=3 if name in DEAR else examples(40),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(case=operation.as_strategy())
    def ask(case: schemathesis.Case) -> None:
        if "app" in case.path_parameters and len(case.path_parameters["app"]) % 2:
            case.path_parameters["app"] = "wc"  # one that is there
        if name == "getClocks":
            case.query.pop("timeout", None)
            case.query.pop("wait", None)  # what is asked for may be to wait for a long time
        answer = case.call(base_url=shared_console.address.rstrip("/"), headers=headers)
        assert answer.status_code != 500, answer.text
        case.validate_response(answer, checks=CHECKS)

    ask()
    assert shared_console.http.get("/healthz").status_code == 200
