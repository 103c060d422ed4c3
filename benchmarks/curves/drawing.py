"""Draws a curve: the measured points and the line of the model, a panel for each figure, axes logarithmic.

Called by the command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.curves.curve import Curve, Figure, fitted

POINT, LINE, TEXT, GRID = "#1f6feb", "#8b949e", "#24292f", "#d8dee4"
STEPS = 60


def draw(curve: Curve, measured: Mapping[int, Mapping[str, float]], file: Path) -> None:
    """Write the picture of `measured` (figures by x) as SVG, the same bytes for the same figures."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": curve.name, "font.size": 9, "font.family": "sans-serif"})
    mpl.rcParams.update(dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), TEXT))
    from matplotlib import pyplot as plt

    figures = [figure for figure in curve.figures if points_of(figure, measured)]
    drawn, panels = plt.subplots(1, len(figures), figsize=(3.4 * len(figures), 2.7), squeeze=False)
    for figure, axes in zip(figures, panels[0], strict=True):
        _panel(axes, figure, points_of(figure, measured))
        axes.set_xlabel(curve.quantity)
    drawn.suptitle(curve.title, fontsize=10)
    drawn.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(file, format="svg", metadata={"Date": None})
    plt.close(drawn)


def points_of(figure: Figure, measured: Mapping[int, Mapping[str, float]]) -> list[tuple[float, float]]:
    """(x, y) of a figure, where it was measured and is above zero."""
    return [(x, one[figure.key]) for x, one in sorted(measured.items()) if one.get(figure.key, 0) > 0]


def _panel(axes: Any, figure: Figure, points: Sequence[tuple[float, float]]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(visible=True, which="major", color=GRID, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(figure.name, fontsize=8)
    if figure.has_model and len(points) > 1:
        model, first, last = fitted(points), points[0][0], points[-1][0]
        line = [first * (last / first) ** (n / STEPS) for n in range(STEPS + 1)]
        axes.plot(line, [model.at(x) for x in line], color=LINE, linewidth=1.2)
    axes.plot([x for x, _ in points], [y for _, y in points], "o", color=POINT, markersize=4)
