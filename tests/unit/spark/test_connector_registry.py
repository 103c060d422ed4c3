"""Connectors are found by the class of a declaration: built-in ones, and those of installed packages."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from connector_package import Install, guide_connector, installing
from drivetrain import sinks, sources
from drivetrain.cli.checks.finding import Verdict
from drivetrain.cli.checks.software import check_connectors
from drivetrain.connectors.registry import BUILT_IN, ConnectorError, connector_of
from drivetrain.spark.connector.installed import installed_connectors


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    with installing(tmp_path) as function:
        yield function


def test_the_guides_connector_opens_its_declarations_and_built_in_ones_stay(install: Install) -> None:
    code, value = guide_connector()
    install("numbers_connector", code, value)
    numbers = importlib.import_module("numbers_connector")
    found = connector_of(numbers.Numbers(rows=3), "source")
    assert type(found) is numbers.NumbersConnector
    assert connector_of(numbers.LinesFile(path="out"), "sink") is found
    assert connector_of(sources.text("in/"), "source") is BUILT_IN["files"]
    assert connector_of(sinks.none(), "sink") is BUILT_IN["none"]
    with pytest.raises(ConnectorError, match="no connector opens the sink numbers_connector"):
        connector_of(numbers.Numbers(rows=3), "sink")


def test_every_built_in_class_has_one_connector() -> None:
    declared = {*get_args(sources.Source), *get_args(sinks.Sink)} - {sources.CustomSource, sinks.CustomSink}
    classes = [kind for connector in BUILT_IN.values() for kind in (*connector.sources, *connector.sinks)]
    assert len(classes) == len(set(classes))
    assert not [kind for kind in declared if not issubclass(kind, tuple(classes))]
    assert not any(a is not b and issubclass(a, b) for a in classes for b in classes)


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        ("import no_such_module", "mine_connector:Mine", "mine_connector:Mine raised ModuleNotFoundError"),
        ("", "mine_connector:Mine", "raised AttributeError"),
        ("class Mine:\n    pass\n", "mine_connector:Mine", "is not a subclass of drivetrain.spark.connector"),
        ("class Mine:\n    def __init__(self):\n        1 / 0\n", "mine_connector:Mine", "ZeroDivisionError"),
    ],
)
def test_a_broken_entry_point_is_named_when_a_declaration_needs_it(
    install: Install, text: str, value: str, why: str
) -> None:
    install("mine_connector", text, value)
    assert connector_of(sinks.none(), "sink") is BUILT_IN["none"]
    with pytest.raises(ConnectorError, match=r"mine \(of mine_connector\)") as raised:
        connector_of(sinks.CustomSink(), "sink")
    assert why in str(raised.value)
    assert raised.value.remedy == "repair or reinstall the package"
    (finding,) = check_connectors()
    assert finding.verdict is Verdict.WARN
    assert why in finding.found


def test_a_declaration_without_a_connector_says_what_to_install() -> None:
    with pytest.raises(ConnectorError, match="no connector opens the source") as raised:
        connector_of(sources.CustomSource(), "source")
    assert "install the package of its connector" in str(raised.value.remedy)


def test_two_installed_connectors_of_one_class_are_refused(install: Install) -> None:
    text = """
from drivetrain import sinks
from drivetrain.spark.connector import Connector

class Mine(Connector):
    sinks = (sinks.CustomSink,)
"""
    for name in ("mine_connector", "other_connector"):
        install(name, text, f"{name}:Mine")
    assert len(installed_connectors().connectors) == 2
    assert [finding.verdict for finding in check_connectors()] == [Verdict.OK]
    with pytest.raises(ConnectorError, match="several connectors open") as raised:
        connector_of(sinks.CustomSink(), "sink")
    assert raised.value.got == "mine (of mine_connector), other (of other_connector)"
