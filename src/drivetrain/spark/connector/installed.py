"""The connectors of installed packages, found by their entry points.

Works without Spark, although the packages may need it. A package that cannot be loaded must not affect
applications that do not use it, so failures are kept as text.

Called by `connectors.registry` and `cli.checks.software`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from drivetrain.spark.connector.connector import Connector

GROUP = "drivetrain.connectors"
"""The group of entry points: the name of each is the connector's, the value its class."""


@dataclass
class Installed:
    """The connectors of installed packages by the names of their entry points, and other errors."""

    connectors: dict[str, Connector] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


@cache
def installed_connectors() -> Installed:
    """Load every entry point of the group; failures are kept as text, for the error that needs them."""
    found = Installed()
    for point in entry_points(group=GROUP):
        _load(point, found)
    return found


def _load(point: EntryPoint, found: Installed) -> None:
    name = point.name if point.dist is None else f"{point.name} (of {point.dist.name})"
    try:
        loaded = point.load()
        connector = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:  # noqa: BLE001 - code of an installed package may raise anything
        found.failed[name] = f"{point.value} raised {type(error).__name__}: {error}"
        return
    if not isinstance(connector, Connector):
        found.failed[name] = f"{point.value} is not a subclass of drivetrain.spark.connector.Connector"
    elif name in found.connectors:
        found.failed[name] = f"{point.value}: its name is taken by another entry point of the package"
    else:
        found.connectors[name] = connector
