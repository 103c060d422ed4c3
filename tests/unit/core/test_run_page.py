"""A notebook sees every fragment of a run, with its clock beside the others'."""

from __future__ import annotations

import re
from xml.dom import minidom

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.run_page import RunPage
from drivetrain.core.job.run_progress import (
    FragmentProgressed,
    FragmentState,
    FragmentStateChanged,
    InputProgressed,
    RunStarted,
)


def widths(page: str) -> list[float]:
    return [float(w) for w in re.findall(r'rect width="([\d.]+)" height="14" rx="3" fill="#4338ca"', page)]


def progressed(fragment: str, clock_ms: int | None, delay_ms: int | None = None) -> FragmentProgressed:
    return FragmentProgressed(fragment, 3, 1200, 50.0, 90, 7, clock_ms, watermark_delay_ms=delay_ms)


def test_clocks_are_bars_on_one_axis() -> None:
    page = RunPage()
    page.take(RunStarted("shop", ("hourly", "daily")))
    assert widths(page.html("running")) == [0.0, 0.0]
    page.take(progressed("hourly", 0))
    page.take(progressed("hourly", 8_000, 2_000))
    page.take(progressed("daily", 5_000))
    assert widths(page.html("running")) == [208.0, 130.0]
    page.take(progressed("hourly", FINAL_CLOCK_MS))
    assert widths(page.html("running")) == [260.0, 130.0]
    shown = page.html("running")
    assert ">end<" in shown
    assert "1,200" in shown


def test_what_users_wrote_is_escaped() -> None:
    page = RunPage()
    page.take(RunStarted("<i>shop</i>", ("a&b",)))
    page.take(FragmentStateChanged("a&b", FragmentState.FAILED, "<script>"))
    page.take(InputProgressed(0.5))
    shown = page.html("failed: <b>")
    assert "<script>" not in shown
    assert "<i>" not in shown
    assert "50 % of the input" in shown
    minidom.parseString(shown)
