"""Collects the keys of the topic modules into one catalog, keyed by name.

Invariants:
1. No two keys share a name or an environment variable.
2. No key's name is the prefix of another's: `a.b` and `a.b.c` cannot both have a value in one TOML file.

Called once, on import of `drivetrain.config.catalog`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from drivetrain.config.key import Key, environment_name


def collect_keys(*topics: ModuleType) -> Mapping[str, Key[Any]]:
    """Collect every `Key` constant of the modules, keyed by name, in the order of their definition.

    Raises ValueError when two keys collide, which is a mistake in the catalog.
    """
    keys: dict[str, Key[Any]] = {}
    variables: dict[str, str] = {}
    for topic in topics:
        for key in vars(topic).values():
            if not isinstance(key, Key):
                continue
            clashing = keys.keys() & {key.name} or {variables.get(environment_name(key.name))} - {None}
            if clashing or any(_nested(key.name, other) for other in keys):
                raise ValueError(f"the key {key.name} collides with another")
            keys[key.name] = key
            variables[environment_name(key.name)] = key.name
    return MappingProxyType(keys)


def _nested(one: str, other: str) -> bool:
    return one.startswith(f"{other}.") or other.startswith(f"{one}.")
