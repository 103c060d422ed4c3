"""How an application is shown at the prompt and in notebooks.

Problem: `app.preview(stream)` needs Spark, and the picture of a plan needs the code that draws it. Both lie
in layers above this one, which must not be imported from here.

Design: the package `drivetrain` says, when it is imported, what makes previews and pictures (`install`).
Either imports what it needs when it is called.

Called by `application`, `core.plan.plan` and `drivetrain` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drivetrain.errors import InternalError


@dataclass(frozen=True)
class Views:
    """Makes what is shown: `preview` of an application and a processor's id, `draw` of it or of a plan."""

    preview: Callable[..., Any]
    draw: Callable[[Any], str]


_installed: list[Views] = []


def install(made: Views) -> None:
    """Use these from now on."""
    _installed[:] = [made]


def views() -> Views:
    """Those that were installed."""
    if not _installed:
        raise InternalError("no views are installed: import `drivetrain` first")
    return _installed[0]
