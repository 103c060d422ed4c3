"""An application that counts messages by windows whose length changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shop import SCHEMA

from drivetrain import Application, agg, sinks, sources, windows

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from totals import totals
app = totals({directory!r}, {hours})
"""


def totals(directory: Path | str, hours: int, *, fails: bool = False) -> Application:
    """Messages counted by windows of so many hours, in one query with their source."""
    place = Path(directory)
    app = Application("totals")
    stream: Any = app.read(
        sources.json(place / "in", schema=SCHEMA, event_time="at", watch=True), name="read"
    )
    if fails:

        def never(row: Any) -> bool:
            raise ValueError(f"message {row.n} cannot be taken")

        stream = stream.filter(never, name="never")
    window = windows.tumbling(f"{hours} h")
    counts = stream.window(window).aggregate(n=agg.count(), first=agg.min("n"), step="hourly")
    counts.sink(sinks.json(place / "hourly"), name="hourly_out")
    return app
