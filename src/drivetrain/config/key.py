"""A configuration key: its name, how its value is read, its default and what it is for.

Problem: settings that are read by name anywhere in the program cannot be listed, checked or documented.

Design: every setting is a module-level `Key` constant in `drivetrain.config.catalog`; the program reads
`config[KEY]` and gets the key's own type. The default is written as a user would write it and read by
the key's own parser, so that the documentation and the program cannot disagree.

Invariants:
1. A key's default is a value that its parser accepts.
2. A key's name is lower case words joined by dots and hyphens.

Called by the catalog, `Config` and the commands that list keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from drivetrain.config.units import Parser

T = TypeVar("T")

ENVIRONMENT_PREFIX: Final = "DRIVETRAIN_"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[.-][a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """One setting: `name` as written in TOML, `parse` for its value, `default` as a user writes it, `doc`.

    With `is_table`, the entries below the name are the value (`spark.conf`). Raises ValueError when the
    name is malformed or the default is not a value of the key, which is a mistake in the catalog.
    """

    name: str
    parse: Parser[T]
    default: object
    doc: str
    is_table: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"not the name of a key: {self.name!r}")
        self.parse.read(self.default)

    @property
    def default_value(self) -> T:
        """The default as a value of the program."""
        return self.parse.read(self.default)


def environment_name(name: str) -> str:
    """The variable that sets the key `name`: "spark.driver-memory" is DRIVETRAIN_SPARK_DRIVER_MEMORY."""
    return ENVIRONMENT_PREFIX + re.sub(r"[.-]", "_", name).upper()
