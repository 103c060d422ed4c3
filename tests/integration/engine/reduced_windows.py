"""Windows that may be computed of partial results: their results, a naive model of them, and who decides.

Called by the tests of readers that reduce messages, of files and of channels.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, ms

from drivetrain import agg
from drivetrain.core.job.run_progress import FragmentProgressed, ProgressEvent
from drivetrain.spark.prepare import fragment

SIZE_MS = 10_000
DISORDER_MS = 5_000
PER_FILE = 100
RESULTS: dict[str, Any] = {
    "messages": agg.count(),
    "numbers": agg.count("n"),
    "total": agg.sum("n"),
    "least": agg.min("n"),
    "newest": agg.max("day"),
}
"""The results of each window, of messages with a key k, a number n and a day."""
Found = dict[tuple[str | None, int], tuple[Any, ...]]
"""The results of windows by key and begin, in ms."""


def write(directory: Path, messages: list[dict[str, Any]], first: int = 0) -> None:
    """Write JSON lines in several files of a directory, whose names begin with number `first`."""
    directory.mkdir(exist_ok=True)
    for number in range(0, len(messages), PER_FILE):
        lines = [json.dumps(message, default=_text) for message in messages[number : number + PER_FILE]]
        (directory / f"{first + number:05}.jsonl").write_text("\n".join(lines) + "\n")


def _text(value: Any) -> str:
    return str(value.isoformat().replace("+00:00", "Z"))


def model(messages: list[dict[str, Any]]) -> Found:
    """What the windows of these messages must have, computed naively."""
    groups = defaultdict(list)
    for message in messages:
        groups[message["k"], ms(message["at"]) // SIZE_MS * SIZE_MS].append(message)
    found = {}
    for group, of in groups.items():
        numbers = [message["n"] for message in of if message["n"] is not None]
        totals = (sum(numbers), min(numbers)) if numbers else (None, None)
        found[group] = (len(of), len(numbers), *totals, max(message["day"] for message in of))
    return found


def shown(drive: Harness) -> Found:
    """What the sink has."""
    rows = drive.rows()
    found = {(row["k"], ms(row["window_start"])): tuple(row[name] for name in RESULTS) for row in rows}
    assert len(found) == len(rows), "each window is shown once"
    assert all(ms(row["window_end"]) - ms(row["window_start"]) == SIZE_MS for row in rows)
    return found


class Reading:
    """Stops a run after so many of its batches, or of those of a fragment that reads a channel."""

    def __init__(self, batches: int, *, of_channel: bool = False) -> None:
        self._batches, self._of_channel = batches, of_channel
        self._seen = -1
        self._first: int | None = None

    def on_event(self, event: ProgressEvent) -> None:
        if not isinstance(event, FragmentProgressed) or event.batch_id < 0:
            return
        if event.channels or not self._of_channel:
            self._seen = event.batch_id
            self._first = event.batch_id if self._first is None else self._first

    def stop_requested(self) -> bool:
        return self._first is not None and self._seen >= self._first + self._batches


def decisions(monkeypatch: pytest.MonkeyPatch, decider: str) -> list[bool]:
    """Whether the trunks for which the function `decider` decides get partial results, from now on."""
    found: list[bool] = []
    decide = getattr(fragment, decider)

    def deciding(*given: Any) -> Any:
        decided = decide(*given)
        found.append(decided is not None)
        return decided

    monkeypatch.setattr(fragment, decider, deciding)
    return found
