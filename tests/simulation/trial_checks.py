"""Whether trials end as they may: by messages in every changed fragment, or after waiting for some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from drivetrain.core.change.difference import touched
from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.runtime.graph_versions import GraphVersions
from drivetrain.spark.session.offset_log import committed


class TrialChecks:
    """Knows which batches had messages, and since when each version was on trial; `now_s` is the time."""

    def __init__(self, wait_s: float, now_s: Callable[[], float]) -> None:
        self.rows_of: dict[tuple[Path, int], int] = {}
        """How many messages each batch had, by the directory of its query."""
        self._wait_s = wait_s
        self._now_s = now_s
        self._since_s: dict[int, float] = {}

    def recorded(self, number: int) -> None:
        """A version is in force."""
        self._since_s.setdefault(number, self._now_s())

    def unproven(
        self,
        stored: GraphVersions,
        number: int,
        directory: Callable[[str], Path],
        is_finished: Callable[[str], bool],
    ) -> list[str]:
        """The fragments without which the trial of a version may not be over yet."""
        record = stored.version(number)
        if record.at_ms is not None:  # the clock may have reached that time without a message
            return []
        if self._now_s() - self._since_s[number] >= self._wait_s:
            return []
        fragments = touched(stored.version(record.follows), record)
        return [
            f for f in sorted(fragments) if not is_finished(f) and not self._is_proven(directory(f), number)
        ]

    def _is_proven(self, directory: Path, number: int) -> bool:
        """Whether a fragment has committed a batch with messages of a version."""
        checkpoint, noted = directory / "checkpoint", BatchVersions(directory)
        batches = range(committed(checkpoint) + 1)
        return any(self.rows_of.get((checkpoint, n)) and noted.version_of(n) == number for n in batches)
