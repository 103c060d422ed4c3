"""The largest event timestamps of a batch, as the engine reports them to a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Newest:
    """The largest timestamp of a batch in ms (None: no message), and by partition if it has partitions.

    `unknown` counts messages of unknown partitions.
    """

    newest_ms: int | None
    by_partition: Mapping[int, int] = field(default_factory=dict)
    unknown: int = 0
    is_partitioned: bool = False
