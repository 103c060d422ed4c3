"""The difference between two kept versions of an application: as a table, as data, and as a picture.

Called by `cli.changes.versions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from drivetrain.cli.views.picture import draw_compared
from drivetrain.cli.views.picture_file import write_picture
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.version_comparison import (
    SIGNS,
    ComparedProcessor,
    Mark,
    VersionComparison,
    compare_versions,
)
from drivetrain.core.figures import show_clock
from drivetrain.errors import UserError
from drivetrain.terminal import Console, Table, Text, print_line

STYLES: Final = {
    Mark.NEW: "green",
    Mark.GONE: "red",
    Mark.CHANGED: "yellow",
    Mark.KEPT: "dim",
    Mark.REFUSED: "bold red",
}


def compared(records: Mapping[int, GraphVersion], between: tuple[int, int], app: str) -> VersionComparison:
    """Compare two of the versions that are kept; raises UserError if there is no such version."""
    for number in between:
        if number not in records:
            raise UserError(
                f"there is no version {number}",
                where=app,
                expected=f"one of {', '.join(map(str, records))}"
                if records
                else "an application that has run",
                remedy="drivetrain versions shows them",
            )
    old, new = (records[number] for number in between)
    return compare_versions(old, new)


def as_data(of: VersionComparison) -> dict[str, Any]:
    """As plain data for `--json`."""
    return {
        "application": of.new.application,
        "from": of.old.number,
        "to": of.new.number,
        "processors": [
            {
                "id": each.id,
                "mark": each.mark.value,
                "why": each.why,
                "before": None if each.before is None else each.before.shown,
                "after": None if each.after is None else each.after.shown,
                "fragment_before": each.fragment_before,
                "fragment_after": each.fragment_after,
                "line": each.line,
            }
            for each in of.processors
        ],
    }


def draw(of: VersionComparison, file: Path) -> None:
    """Write the picture of a comparison."""
    write_picture(file, draw_compared(of.old, of.new, of.marks, f"version {of.old.number}"))


def show(of: VersionComparison, picture: Path | None, console: Console) -> None:
    """Print the differences, processor by processor; processors that are kept share one line."""
    old, new = of.old, of.new
    console.print(
        Text.assemble(
            (new.application, "bold"),
            f": version {new.number} ({_made(new)}) against version {old.number} ({_made(old)})",
        )
    )
    if of.is_empty:
        console.print("nothing differs")
    else:
        table = Table()
        table.add_names("processor", "", "why", "before", "after", "fragment")
        for each in of.processors:
            if each.mark is not Mark.KEPT:
                table.add_row(each.id, _marked(each.mark), each.why, *_shown(each), _fragment(each))
        console.print(table)
        if kept := [each.id for each in of.processors if each.mark is Mark.KEPT]:
            console.print(Text(f"kept: {', '.join(kept)}", "dim"))
    if picture is not None:
        print_line(f"picture: {picture}")


def _marked(mark: Mark) -> Text:
    return Text(f"{SIGNS[mark]} {mark}", STYLES[mark])


def _shown(each: ComparedProcessor) -> tuple[str, str]:
    before, after = ("" if one is None else one.shown for one in (each.before, each.after))
    return ("", after) if before == after else (before, after)


def _fragment(each: ComparedProcessor) -> str:
    return each.fragment_after or each.fragment_before or ""


def _made(version: GraphVersion) -> str:
    by = f", {version.made_by}" if version.made_by else ""
    return f"{show_clock(version.made_at_ms)} UTC{by}"
