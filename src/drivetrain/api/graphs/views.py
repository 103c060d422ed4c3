"""How an application is shown at the prompt and in notebooks.

Problem: `app.preview(stream)` needs Spark, and the picture of a plan needs the code that draws it. Both are
in layers above this one, which this module must not import.

Design: when the package `drivetrain` is imported, it installs the two functions that make previews and
pictures (`install`). Each function imports what it needs when it is called.

Called by `application`, `core.plan.plan` and `drivetrain` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drivetrain.errors import InternalError


@dataclass(frozen=True)
class Views:
    """Two functions: `preview` takes an application and a processor's id, `draw` an application or a plan."""

    preview: Callable[..., Any]
    draw: Callable[[Any], str]


_installed: list[Views] = []


def install(made: Views) -> None:
    """Use these functions from now on."""
    _installed[:] = [made]


def views() -> Views:
    """The functions that were installed."""
    if not _installed:
        raise InternalError("no views are installed: import `drivetrain` first")
    return _installed[0]
