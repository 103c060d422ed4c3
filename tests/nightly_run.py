"""Whether this is the nightly run, in which tests take longer. Only this module reads the variable.

Called by `conftest.py` and by the tests that do more in the nightly run.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

Point = TypeVar("Point")


def is_nightly() -> bool:
    """Whether the nightly run's variable is set, which also holds the seeds of simulations."""
    return "DRIVETRAIN_SEEDS" in os.environ


def first_seed(otherwise: int) -> int:
    """The first seed of the variable (`7`, `128-600` or `3,5`) in the nightly run; `otherwise` in others."""
    return int(os.environ.get("DRIVETRAIN_SEEDS", str(otherwise)).split(",")[0].split("-")[0])


def some_by_day(values: Iterable[Point], by_day: Collection[Point], why: str) -> list[ParameterSet]:
    """The parameters of a test, of which the others are for the nightly run, because of `why`."""
    at_night = pytest.mark.nightly(why)
    return [pytest.param(value, marks=() if value in by_day else at_night) for value in values]


def examples(at_night: int) -> int:
    """How many examples of a property are tried: a quarter of those of the nightly run.

    By day they are the same in every run, so that more of them find something only after a change.
    """
    return at_night if is_nightly() else at_night // 4


def deaths(points: Sequence[Point], together: int, times: int) -> list[list[Point]]:
    """Where the process of each simulated world dies: in the nightly run at one point so many `times`.

    In others it dies at several points one after the other, once at each: a world costs most before that.
    """
    if is_nightly():
        return [[point] * times for point in points]
    return [list(points[first : first + together]) for first in range(0, len(points), together)]
