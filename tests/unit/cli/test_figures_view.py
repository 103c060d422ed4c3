"""The figures of fragments: a table on a wide terminal, the same as sentences on a narrow one."""

from __future__ import annotations

import io

from drivetrain.cli.views.figures_view import WIDE, figures_of
from drivetrain.cluster.messages.following import FragmentView
from drivetrain.core.job.fragment_figures import Counters, FragmentFigures, LastBatch, Phases
from drivetrain.terminal import Console

FIGURES = FragmentFigures(
    Counters(17, blocked_ms={"a--b": 2_000, "a--c": 1_500}),
    LastBatch(phases=Phases(computing_ms=100, sink_ms=900), sinks_ms={"to-db": 900}),
    state_rows=5,
    state_bytes=12_345_678,
    state_partitions=4,
    latency_p50_ms=2_000,
    latency_p99_ms=-3,
)


def printed(width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    fragments = [FragmentView("a", "running", 1, figures=FIGURES), FragmentView("new", "running", 1)]
    console.print(figures_of(fragments, width))
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def test_both_forms_have_the_same_figures() -> None:
    for told in (printed(WIDE), printed(80)):
        for figure in ("17", "writing to to-db, 90 %", "12.3 MB in 4", "2.0 s", "0 ms", "3.5 s"):
            assert figure in told
        assert "new" not in told.split()
    assert "─" in printed(WIDE)
    assert "─" not in printed(80)


def test_before_the_first_batch_nothing_is_shown() -> None:
    assert figures_of([FragmentView("a", "running", 1)], 200) is None
