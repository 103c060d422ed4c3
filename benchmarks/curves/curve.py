"""What a curve is: one quantity that grows, the figures measured at each of its values, and their models.

The model of a figure is a fixed part and a part that grows with the quantity: `fixed + each × x`. Both are at
least zero. They are chosen so that the squares of the *relative* deviations are least, because a curve covers
many powers of ten and a user wants the same precision at both ends.

Called by the modules of the curves, by `drawing` and by the command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One line of a curve: its key in what `measure` returns, its name with the unit."""

    key: str
    name: str
    has_model: bool = True


@dataclass(frozen=True)
class Curve:
    """A quantity `x` and how to measure what it costs.

    `measure(x, work)` does so in this very process and writes below `work`. `points` are the values of a
    whole run, `quick_points` those of a short one.
    """

    name: str
    title: str
    quantity: str
    points: Sequence[int]
    quick_points: Sequence[int]
    figures: Sequence[Figure]
    measure: Callable[[int, Path], Mapping[str, float]]


@dataclass(frozen=True)
class Model:
    """`fixed + each × x`, and the largest deviation of a measured point from it, as a share of the point."""

    fixed: float
    each: float
    worst: float

    def at(self, x: float) -> float:
        """What the model says for `x`.

        >>> Model(2.0, 0.5, 0.0).at(4)
        4.0
        """
        return self.fixed + self.each * x


def fitted(points: Sequence[tuple[float, float]]) -> Model:
    """The model of measured points (x, y); each y is above zero, and there are two different x at least.

    >>> fitted([(1, 3.0), (10, 12.0), (100, 102.0)])
    Model(fixed=2.0, each=1.0, worst=0.0)
    """
    # Least squares of 1 - (fixed + each * x) / y: with u = 1/y and v = x/y, fixed * u + each * v should be 1.
    u = [1 / y for _, y in points]
    v = [x / y for x, y in points]
    uu, uv, vv = _dot(u, u), _dot(u, v), _dot(v, v)
    determinant = uu * vv - uv * uv
    fixed = (vv * sum(u) - uv * sum(v)) / determinant
    each = (uu * sum(v) - uv * sum(u)) / determinant
    if fixed < 0:
        fixed, each = 0.0, sum(v) / vv
    elif each < 0:
        fixed, each = sum(u) / uu, 0.0
    fixed, each = _rounded(fixed), _rounded(each)
    worst = max(abs(fixed + each * x - y) / y for x, y in points)
    return Model(fixed, each, _rounded(worst))


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _rounded(value: float) -> float:
    """Six digits: what is left of rounding errors becomes zero."""
    return 0.0 if abs(value) < 1e-12 else float(f"{value:.6g}")
