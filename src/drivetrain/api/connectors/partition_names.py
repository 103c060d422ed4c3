"""How a partition of a table is declared: a column, or a unit of time of one, such as `day(at)`.

Called by declarations of sinks that write to tables, and by their adapters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

UNITS: Final = ("year", "month", "day", "hour")
_CALL: Final = re.compile(r"(\w+)\(\s*(.+?)\s*\)", re.DOTALL)


@dataclass(frozen=True)
class PartitionName:
    """The column, and the unit of its times; None: the column's values themselves."""

    column: str
    unit: str | None = None


def partition_name(declared: str) -> PartitionName:
    """The partition that a text declares; raises `ValueError` for a function that is not a unit of time.

    >>> partition_name("day(at)")
    PartitionName(column='at', unit='day')
    """
    found = _CALL.fullmatch(declared)
    if found is None:
        return PartitionName(declared)
    if found[1] not in UNITS:
        raise ValueError(f"{found[1]} is none of {', '.join(UNITS)}")
    return PartitionName(found[2], found[1])


def field_name(declared: str) -> str:
    """The name of the partition in a table.

    >>> field_name("day(at)"), field_name("country")
    ('at_day', 'country')
    """
    found = partition_name(declared)
    return found.column if found.unit is None else f"{found.column}_{found.unit}"
