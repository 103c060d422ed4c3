"""Sorts the values of `--set` into keys of the catalog and settings of the application.

Problem: `--set` has two kinds of target, and a misspelt one must not be ignored silently. The names that an
application declares (`app.setting("input")`) are known only after its file has run.

Invariants:
1. Every given value is in exactly one of the two results, or an error is raised.
2. An application's setting never hides a key of the catalog.

Called by the commands, after they have loaded an application.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from drivetrain.config.catalog import ALL_KEYS
from drivetrain.config.config import find_key
from drivetrain.config.nearest import did_you_mean
from drivetrain.errors import ConfigError


def split_sets(
    sets: Mapping[str, str], declared: Collection[str]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Sort `sets`, keyed by name, into (keys of the catalog, settings of the application).

    `declared` holds the names that the application declares. Raises ConfigError for a name that is
    neither, with the nearest of both, and for a declared name that is a key of the catalog.
    """
    hidden = next((name for name in declared if find_key(name) is not None), None)
    if hidden is not None:
        raise ConfigError(
            f'the application\'s setting "{hidden}" has the name of a configuration key',
            remedy="give the application's setting another name",
        )
    catalog: dict[str, str] = {}
    application: dict[str, str] = {}
    for name, raw in sets.items():
        if name in declared:
            application[name] = raw
        elif find_key(name) is not None:
            catalog[name] = raw
        else:
            own = ", ".join(sorted(declared)) or "none"
            raise ConfigError(
                f'neither a setting of the application nor a configuration key: "{name}"',
                where=f"--set {name}",
                expected=f"a setting of the application ({own}) or a key listed by `drivetrain config`",
                remedy=did_you_mean(name, [*sorted(declared), *ALL_KEYS], otherwise="check the spelling"),
            )
    return MappingProxyType(catalog), MappingProxyType(application)
