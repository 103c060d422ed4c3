"""The application of `watching_application.py` in a cluster, with its state and results in a store.

It watches its input in the same store, so it runs for as long as a test needs, however slow the machine is.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from drivetrain.cluster.messages.applications import ApplicationState
from stored_place import StoredPlace
from whole_cluster import WholeCluster, wait_for

FILE = str(Path(__file__).parent / "watching_application.py")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STEP, KEYS = 150, 4
"""How many messages each file has, one a second, and of how many keys; windows are a minute."""


class Watching:
    """The application `watching`, submitted with its first messages, and what it must write."""

    def __init__(self, place: StoredPlace, cluster: WholeCluster) -> None:
        self.place, self.cluster, self.given = place, cluster, 0
        self.give()
        sets = {
            **place.sets,
            "state.dir": f"{place.uri}/states",
            "checkpoint.interval": "500 ms",
            "app.executors": "2",
            "place": place.uri,
        }
        options = [text for key, value in sets.items() for text in ("--set", f"{key}={value}")]
        submitted = cluster.submit(FILE, "--detached", *options)
        assert submitted.returncode == 0, submitted.stderr

    def give(self) -> None:
        """Put another file of messages into its input."""
        messages = [
            {"id": id, "key": str(id % KEYS), "at": (BEGIN + timedelta(seconds=id)).isoformat()}
            for id in range(self.given, self.given + STEP)
        ]
        self.place.write(f"in/{self.given:06d}.json", "\n".join(map(json.dumps, messages)).encode())
        self.given += STEP

    def command(self, name: str, *words: str) -> None:
        """Run a command of `drivetrain` on it."""
        self.cluster.command(name, "watching", *words, expect=0)

    def wait_all_shown(self) -> None:
        """Wait until there are results of all messages, each or more than once."""

        def are_shown() -> bool:
            view, _ = self.cluster.status("watching")
            assert view.state in (ApplicationState.PENDING, ApplicationState.ACTIVE), view.why
            ids = {row["id"] for row in self.place.rows("each")}
            return len(ids) == self.given and self._windows() >= self._expected()

        wait_for(are_shown, "the results of all messages")

    def require_exact(self) -> None:
        """Each message is there once, and so is each minute that is over, of each key."""
        assert sorted(row["id"] for row in self.place.rows("each")) == list(range(self.given))
        assert self._windows() == self._expected()

    def _windows(self) -> Counter[tuple[str, int]]:
        return Counter((row["key"], row["n"]) for row in self.place.rows("counts"))

    def _expected(self) -> Counter[tuple[str, int]]:
        minutes = (self.given - 1) // 60
        return Counter({(str(key), 60 // KEYS): minutes for key in range(KEYS)})
