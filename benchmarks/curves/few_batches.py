"""Runs an application whose every batch is one file, and measures the batches after the first ones.

Called by the curves that need batches of a known size.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import cpu_s

if TYPE_CHECKING:
    from drivetrain.core.job.run_progress import ProgressEvent


class Batches:
    """Notes how long each batch took, and the CPU seconds of all processes when it had ended."""

    def __init__(self) -> None:
        self.ended: dict[int, tuple[float, float]] = {}

    def on_event(self, event: ProgressEvent) -> None:
        """Take the end of a batch."""
        from drivetrain.core.job.run_progress import FragmentProgressed

        if not isinstance(event, FragmentProgressed) or not event.batch_ms:
            return
        if event.batch_id not in self.ended:
            self.ended[event.batch_id] = (float(event.batch_ms), cpu_s())

    def stop_requested(self) -> bool:
        """The input ends by itself."""
        return False

    def figures(self, warm: int, count: int) -> dict[str, float]:
        """The median ms and the mean CPU ms of the `count` batches that follow the first `warm` ones.

        Of two batches that end between two looks at the fragment, only the second one is seen.
        """
        if max(self.ended, default=0) < warm + count - 1:  # more: the end of the input closes windows
            raise RuntimeError(f"{max(self.ended, default=0) + 1} batches, not {warm + count}")
        before, *ids = [id for id in sorted(self.ended) if warm - 1 <= id < warm + count]
        cpu_s = self.ended[ids[-1]][1] - self.ended[before][1]
        ms = statistics.median(self.ended[id][0] for id in ids)
        return {"ms": ms, "cpu_ms": cpu_s * 1000 / (ids[-1] - before)}


def file_batches(source: Path, work: Path, **settings: Any) -> Any:
    """A configuration with which a batch is a file of `source`; `settings` have _ for - and __ for a dot."""
    from drivetrain.config import Config

    largest = max(file.stat().st_size for file in source.iterdir())
    given = {key.replace("__", ".").replace("_", "-"): str(value) for key, value in settings.items()}
    limit = {"state.dir": str(work / "state"), "run.max-batch-bytes": f"{largest} B"}
    return Config.load(None, {}, {**limit, **given})
