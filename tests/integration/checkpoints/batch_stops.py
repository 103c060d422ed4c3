"""Stops a run once Spark has committed enough batches of a fragment."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def batches(home: Path, fragment: str) -> list[Path]:
    """The batches that a fragment of the application at `home` has committed."""
    return list((home / "fragments" / fragment / "checkpoint" / "commits").glob("[0-9]*"))


class StopAfterBatches:
    """Asks to stop once a fragment of an application below `state` has committed so many batches."""

    def __init__(self, state: Path, fragment: str, count: int) -> None:
        self.state, self.fragment, self.count = state, fragment, count

    def on_event(self, _event: Any) -> None:
        """Does nothing."""

    def stop_requested(self) -> bool:
        """Whether there are so many."""
        return any(len(batches(home, self.fragment)) >= self.count for home in self.state.glob("*"))
