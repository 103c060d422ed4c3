"""The option `--picture`, and the file that it names.

Called by `cli.inspection.plan` and `cli.changes.versions`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drivetrain.errors import OutputError

PictureOption = Annotated[
    Path | None, typer.Option("--picture", metavar="FILE.svg", help="Also draw the graph, as an SVG file.")
]


def write_picture(path: Path, svg: str) -> None:
    """Write a picture; raises OutputError when that is not possible."""
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            "the picture cannot be written",
            where=str(path),
            got=error.strerror,
            remedy="give a file in a directory that exists and that you may write to",
        ) from error
