"""Where the time of each fragment goes, how large its state is, how late its results are.

Design: a table, or on a narrow terminal a line for each fragment.

Called by `cli.inspection.show`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.console import RenderableType

from drivetrain.core.diagnosis.causes import cause_of
from drivetrain.core.figures import show_count, show_counted, show_share, show_size, show_span
from drivetrain.terminal import Table, Text

if TYPE_CHECKING:
    from drivetrain.cluster.messages.following import FragmentView
    from drivetrain.core.job.fragment_figures import FragmentFigures

WIDE: Final = 110
"""From so many characters on it is a table."""


def figures_of(fragments: Sequence[FragmentView], width: int) -> RenderableType | None:
    """The figures of all fragments that have run a batch; None when none has."""
    known = [(view.fragment, view.figures) for view in fragments if view.figures.counters.batches]
    if not known:
        return None
    if width < WIDE:
        return Text("\n".join(_sentence(fragment, figures) for fragment, figures in known) + "\n")
    table = Table()
    table.add_names("fragment")
    table.add_column("batches", justify="right", no_wrap=True)
    table.add_column("most of the last batch", no_wrap=True)
    for heading in ("state (in partitions)", "late (50 %)", "late (99 %)", "blocked"):
        table.add_column(heading, justify="right", no_wrap=True)
    for fragment, figures in known:
        blocked_ms = _blocked_ms(figures)
        table.add_row(
            fragment,
            show_count(figures.counters.batches),
            _cause(figures) or "–",
            "–" if figures.state_bytes is None else _state(figures),
            _span(figures.latency_p50_ms),
            _span(figures.latency_p99_ms),
            show_span(blocked_ms) if blocked_ms else "–",
        )
    return table


def _sentence(fragment: str, figures: FragmentFigures) -> str:
    parts = [show_counted(figures.counters.batches, "batch", "batches")]
    cause = _cause(figures)
    parts += [f"most of the last one: {cause}"] if cause else []
    parts += [f"state {_state(figures)}"] if figures.state_bytes is not None else []
    if figures.latency_p99_ms is not None:
        half, most = _span(figures.latency_p50_ms), _span(figures.latency_p99_ms)
        parts.append(f"results late by {half} (50 %), {most} (99 %)")
    blocked_ms = _blocked_ms(figures)
    parts += [f"blocked for {show_span(blocked_ms)}"] if blocked_ms else []
    return f"{fragment}: {', '.join(parts)}"


def _state(figures: FragmentFigures) -> str:
    """The size of a state, and into how many partitions it is divided."""
    size = show_size(figures.state_bytes or 0)
    return size if figures.state_partitions is None else f"{size} in {figures.state_partitions}"


def _cause(figures: FragmentFigures) -> str | None:
    cause = cause_of(figures)
    return None if cause is None else f"{cause.what}, {show_share(cause.ms / cause.of_ms)}"


def _blocked_ms(figures: FragmentFigures) -> int:
    return sum(figures.counters.blocked_ms.values())


def _span(ms: int | None) -> str:
    return "–" if ms is None else show_span(max(0, ms))
