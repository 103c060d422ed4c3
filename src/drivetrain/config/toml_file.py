"""Reads a TOML file into flat entries with their line numbers.

Problem: an error about a value should name its line, which Python's TOML reader does not provide.

Design: `tomllib` decides what the file means. A second pass over the lines, which knows only `[table]`
headers and `name = value`, finds the line of each name; a name it cannot find (inside an inline table)
gets the line of the nearest enclosing name.

Invariants:
1. Every value of the file is in exactly one entry.
2. A line number is between 1 and the number of lines.

Called by `Config.load`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drivetrain.errors import ConfigError

_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_ASSIGNMENT: Final = re.compile(r"""\s*((?:[A-Za-z0-9_\-]+|"[^"]*"|'[^']*'|\s*\.\s*)+?)\s*=.*""")
_PART: Final = re.compile(r"""[A-Za-z0-9_\-]+|"[^"]*"|'[^']*'""")


@dataclass(frozen=True, slots=True)
class TomlEntry:
    """A value of the file: its dotted name, the value, and its line (from 1)."""

    name: str
    value: object
    line: int


def read_toml(path: Path, tables: frozenset[str]) -> tuple[TomlEntry, ...]:
    """Read the file as entries in file order; the names in `tables` are kept whole, as mappings.

    Raises ConfigError when the file is missing, is not text, or is not TOML.
    """
    try:
        content = path.read_text(encoding="utf-8")
        document = tomllib.loads(content)
    except FileNotFoundError as error:
        raise ConfigError(
            "the configuration file does not exist", where=str(path), remedy="give the path of a TOML file"
        ) from error
    except OSError as error:
        raise ConfigError(
            "the configuration file cannot be read",
            where=str(path),
            got=error.strerror,
            remedy="give the path of a TOML file that you may read",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            "the configuration file is not UTF-8 text",
            where=str(path),
            got=f"the byte 0x{error.object[error.start]:02x} at offset {error.start}",
            remedy="save it as UTF-8",
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            "the configuration file is not valid TOML",
            where=str(path),
            got=str(error),
            remedy='write `name = value` lines under `[table]` headers; texts need quotes: timeout = "100 s"',
        ) from error
    lines = _line_numbers(content)
    return tuple(
        TomlEntry(name, value, _line_of(name, lines)) for name, value in _flatten(document, "", tables)
    )


def _flatten(
    document: Mapping[str, object], prefix: str, tables: frozenset[str]
) -> Iterator[tuple[str, object]]:
    for part, value in document.items():
        name = f"{prefix}{part}"
        if isinstance(value, Mapping) and name not in tables:
            yield from _flatten(value, f"{name}.", tables)
        else:
            yield name, value


def _line_numbers(content: str) -> Mapping[str, int]:
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(content.splitlines(), start=1):
        header = _HEADER.fullmatch(line)
        assignment = None if header else _ASSIGNMENT.fullmatch(line)
        if header is not None:
            table = _dotted(header[1])
            lines.setdefault(table, number)
        elif assignment is not None:
            name = _dotted(assignment[1])
            lines.setdefault(f"{table}.{name}" if table else name, number)
    return lines


def _dotted(written: str) -> str:
    return ".".join(part.strip("\"'") for part in _PART.findall(written))


def _line_of(name: str, lines: Mapping[str, int]) -> int:
    while name not in lines and "." in name:
        name = name.rpartition(".")[0]
    return lines.get(name, 1)
