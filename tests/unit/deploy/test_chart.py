"""The chart: its values fit their schema, and all that it names exists in the product.

What no test here can show: that the objects work in a cluster. With `helm` on the PATH they are rendered,
and, with `kubernetes-validate` installed, compared with the schemas of Kubernetes' API.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from deploy_files import CHART, COMMANDS, TEMPLATES, VARIABLES, values

from drivetrain import __version__
from drivetrain.config import Config
from drivetrain.config.catalog import ALL_KEYS
from drivetrain.config.catalog import run as run_keys
from drivetrain.console.routes.table import ROUTES

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TEXT = {path.name: path.read_text() for path in TEMPLATES}
KUBERNETES = "1.30"
ACTION = re.compile(r"\{\{.*?\}\}", re.DOTALL)


def test_the_chart_deploys_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["name"], chart["appVersion"]) == ("drivetrain", __version__)


def test_the_values_fit_the_schema_and_every_value_is_described() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(values(), SCHEMA)
    assert list(_undescribed(SCHEMA, values(), "")) == []


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("masters", "replicas"), 2),
        (("workers", "slots"), -1),
        (("ports", "master"), 0),
        (("logFormat",), "xml"),
        (("state", "size"), "big"),
        (("state", "place"), "/shared"),
        (("workers", "drainTimeout"), 3),
    ],
)
def test_wrong_values_are_refused(path: tuple[str, ...], wrong: object) -> None:
    given = copy.deepcopy(values())
    inside = given
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = wrong
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(given, SCHEMA)


@pytest.mark.parametrize("name", TEXT)
def test_a_template_names_only_values_that_exist(name: str) -> None:
    for found in re.finditer(r"\.Values((?:\.[A-Za-z]+)+)", TEXT[name]):
        inside: Any = values()
        for part in found[1].strip(".").split("."):
            assert part in inside, f"{found[0]} in {name} is no value"
            inside = inside[part]


@pytest.mark.parametrize("name", TEXT)
def test_a_template_calls_only_definitions_that_exist(name: str) -> None:
    defined = set(re.findall(r'define "([^"]+)"', TEXT["_helpers.tpl"]))
    assert set(re.findall(r'include "([^"]+)"', TEXT[name])) <= defined
    opened = re.findall(r"\{\{-?\s*(?:if|with|range|define)\b", TEXT[name])
    assert len(opened) == len(re.findall(r"\{\{-?\s*end\b", TEXT[name]))


@pytest.mark.parametrize("name", TEXT)
def test_environment_variables_are_those_of_the_product(name: str) -> None:
    assert set(re.findall(r"\bDRIVETRAIN_[A-Z_]+", TEXT[name])) <= VARIABLES


def test_containers_run_commands_that_exist() -> None:
    run = [word for text in TEXT.values() for word in re.findall(r"args: \[([a-z-]+)\]", text)]
    assert sorted(run) == ["console", "master", "worker"]
    assert set(run) <= set(COMMANDS)
    for text in TEXT.values():
        for command in re.findall(r"\bdrivetrain ([a-z]+-[a-z]+) ", text):
            assert command in COMMANDS


def test_the_configuration_has_only_keys_of_the_product() -> None:
    block = TEXT["configuration.yaml"].partition("drivetrain.toml: |\n")[2]
    block = re.sub(r"= \{\{.*?\}\}", '= ""', block.partition("{{- with")[0])
    topics = tomllib.loads(ACTION.sub("0", block))
    written = {f"{topic}.{key}" for topic, keys in topics.items() for key in keys}
    assert written == {"cluster.masters", "cluster.ports", "log.format", "state.dir"}
    assert written <= set(ALL_KEYS)


def test_probes_ask_for_paths_that_are_served() -> None:
    asked = set(re.findall(r"path: (/[a-z]+z),", TEXT["_helpers.tpl"]))
    assert asked == {"/healthz", "/readyz"}
    assert asked <= {route.path for route in ROUTES}  # the console; of the others see test_health


def test_no_container_has_more_rights_than_it_needs() -> None:
    pod, container = values()["podSecurityContext"], values()["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for text in TEXT.values():
        assert text.count(".Values.securityContext") == text.count("image: {{")


def test_the_pod_waits_longer_than_the_worker_drains() -> None:
    found = re.search(r"add \.Values\.workers\.drainSeconds (\d+)", TEXT["workers.yaml"])
    assert found is not None
    assert int(found[1]) >= 15


NEEDS_HELM = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
STORE = """
[s3]
region = "eu-central-1"
access-key = "${STORE_ID}"
secret-key = "${STORE_KEY}"
"""
"""More configuration, of a state in a store."""


@NEEDS_HELM
@pytest.mark.parametrize(
    "sets",
    [
        (),
        ("console.ingress.enabled=true", "console.ingress.host=x.org"),
        ("console.enabled=false",),
        ("state.place=s3://states/x",),
        (
            "state.place=s3://states/x",
            f"configuration={STORE}",
            "workers.envFrom[0].secretRef.name=keys",
            "workers.serviceAccountName=dt",
        ),
    ],
)
def test_helm_renders_objects(sets: tuple[str, ...]) -> None:
    rendered = rendered_with(sets)
    kinds = {each["kind"] for each in rendered}
    assert {"ConfigMap", "Secret", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy"} <= kinds
    assert ("Ingress" in kinds) == bool(sets and "ingress" in sets[0])
    for each in rendered:
        validated(each)
        _require_volumes(each)
    claims = {each["metadata"]["name"] for each in rendered if each["kind"] == "PersistentVolumeClaim"}
    assert ("dt-drivetrain-state" in claims) == (not any(each.startswith("state.place") for each in sets))


@NEEDS_HELM
def test_processes_find_the_state_where_the_chart_says(tmp_path: Path) -> None:
    for sets, place in (
        ((), "/shared/state"),
        (("state.place=s3://states/x", f"configuration={STORE}"), "s3://states/x"),
    ):
        rendered = rendered_with(sets)
        file = tmp_path / "drivetrain.toml"
        file.write_text(next(each for each in rendered if each["kind"] == "ConfigMap")["data"][file.name])
        config = Config.load(file)
        assert config[run_keys.STATE_DIR] == place
        pods = json.dumps([each["spec"] for each in rendered if each["kind"] == "StatefulSet"])
        assert ("/shared" in pods) == place.startswith("/shared"), "only without a store is there a volume"


def rendered_with(sets: tuple[str, ...]) -> list[Any]:
    """The objects that helm makes of the chart with these values."""
    given = [argument for each in sets for argument in ("--set", each.replace(",", "\\,"))]
    subprocess.run(["helm", "lint", "--strict", str(CHART), *given], check=True, capture_output=True)
    rendered = subprocess.run(
        ["helm", "template", "dt", str(CHART), "--kube-version", f"{KUBERNETES}.0", *given],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [document for document in yaml.safe_load_all(rendered) if document]


def validated(rendered: Any) -> None:
    """Raise unless the API of Kubernetes has such an object, if its schemas are installed (100 MB)."""
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("kubernetes_validate").validate(rendered, KUBERNETES, strict=True)


def _require_volumes(rendered: Any) -> None:
    """Every volume that a container mounts is there, and every port that a probe asks has its name."""
    spec = rendered.get("spec", {}).get("template", {}).get("spec", {})
    claims = [claim["metadata"]["name"] for claim in rendered.get("spec", {}).get("volumeClaimTemplates", [])]
    known = {volume["name"] for volume in spec.get("volumes", [])} | set(claims)
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= known
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in container:
                assert container[probe]["httpGet"]["port"] in ports


def _undescribed(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    if "description" not in schema:
        yield path
    for name, inside in (value if isinstance(value, dict) and "properties" in schema else {}).items():
        yield from _undescribed(schema["properties"][name], inside, f"{path}.{name}")
