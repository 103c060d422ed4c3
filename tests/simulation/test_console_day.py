"""What a console keeps over hours of virtual time has bounds, whatever begins and ends meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.console_day import most_rows, simulated

APPLICATIONS = 2


def test_rows_and_entries_have_bounds_while_applications_come_and_go(tmp_path: Path) -> None:
    # Every two hours one ends and another begins; a page is open for one hour of three.
    held = list(simulated(tmp_path, 3, APPLICATIONS, 2, {1}))
    for one in held:
        assert one.rows <= most_rows(APPLICATIONS + one.hour // 2, one.hour)
        assert one.entries["watched"] <= 1
        assert one.entries["missing"] <= APPLICATIONS + 1, "one may have gone just now"
        # A line of each application, those that are gone, the cluster and the connection, and one snapshot.
        assert one.entries["notes"] <= APPLICATIONS + one.hour // 2 + 3
        assert one.entries["noted"] <= APPLICATIONS + one.hour // 2
    assert held[-1].rows > held[0].rows, "something was recorded"
    assert held[-1].entries["watched"] == 0, "nobody looks any more"
    assert held[1].entries["notes"] > 0


@pytest.mark.parametrize("hours", [1, 24, 1_000])
def test_the_bound_of_rows_ends_with_the_time_that_is_kept(hours: int) -> None:
    fine, coarse = 26 * 360, 30 * 288
    assert most_rows(1, hours) <= 2 * (fine + coarse + 200)
