"""An application that reads streams of the shop, as another application."""

from __future__ import annotations

from pathlib import Path

from drivetrain import Application, agg, sinks, sources, windows

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from reports import report
app = report({directory!r}, drop_after={drop_after!r})
"""


def report(directory: Path | str, *, drop_after: str | None = None) -> Application:
    """The marked messages of the shop as they are, and its hourly counts summed by four hours, on the
    shop's clock."""
    place = Path(directory)
    app = Application("report")
    marks = app.read(sources.application("shop", "mark", drop_after=drop_after), name="marks")
    marks.sink(sinks.json(place / "seen"), name="seen_out")
    hours = app.read(sources.application("shop", "hourly", drop_after=drop_after), name="hours")
    four = hours.window(windows.tumbling("4 h")).aggregate(
        n=agg.sum("n"), hours=agg.count(), first=agg.min("window_start"), step="four"
    )
    four.sink(sinks.json(place / "four"), name="four_out")
    return app


def report_program(directory: Path, *, drop_after: str | None = None) -> Path:
    """The application as a file for the command line."""
    file = directory / "report.py"
    told = {"folder": str(Path(__file__).parent), "directory": str(directory), "drop_after": drop_after}
    file.write_text(PROGRAM.format(**told))
    return file
