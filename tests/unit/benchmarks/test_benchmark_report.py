"""How runs become figures, and figures a page."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.measure import OURS, Contender, Job, Scale, WrongResultError, summary
from benchmarks.report import as_main_table, as_markdown, as_text, write_into
from benchmarks.results import expect_equal, read_output


def job(**changes: object) -> Job:
    given: dict[str, object] = {
        "name": "sums",
        "title": "Sums",
        "unit": "sums/s",
        "contenders": (Contender(OURS, lambda _scale, _work: {}),),
        "prepare": lambda _scale: None,
        "units": lambda _scale: 100,
        "check": lambda _scale, _work: None,
        "goals": {"peer": 0.95},
    }
    return Job(**{**given, **changes})  # type: ignore[arg-type]


RUNS = {
    OURS: [
        {"per_s": 90.0, "seconds": 1.1},
        {"per_s": 120.0, "seconds": 0.8},
        {"per_s": 100.0, "seconds": 1.0},
    ],
    "peer": [{"per_s": 80.0, "seconds": 1.2}],
}


def test_a_ratio_is_of_medians_and_above_one_when_ours_is_faster() -> None:
    result = summary(job(), Scale(quick=True), RUNS, {})
    assert result["median"][OURS]["per_s"] == 100.0
    assert result["ours_over"] == {"peer": 1.25}


def test_a_ratio_of_durations_is_above_one_when_ours_is_shorter() -> None:
    result = summary(job(measure="seconds", lower_is_better=True), Scale(quick=False), RUNS, {})
    assert result["ours_over"] == {"peer": 1.2}


def test_a_peer_that_is_not_there_is_named_with_its_reason() -> None:
    result = summary(job(), Scale(quick=False), {OURS: RUNS[OURS]}, {"peer": "it cannot be installed"})
    assert "peer left out: it cannot be installed" in as_text(result)
    assert "Left out: peer, it cannot be installed" in as_markdown(result)


def test_figures_replace_what_is_between_their_markers_and_nothing_else() -> None:
    other = "<!-- figures: other -->\nkept\n<!-- end -->\n"
    page = f"# Page\n<!-- figures: sums -->\nold\n<!-- end -->\ntext\n{other}"
    result = summary(job(), Scale(quick=False), RUNS, {})
    written = write_into(page, {"sums": result})
    assert "old" not in written
    assert "| **drivetrain** | 100 |" in written
    assert written.startswith("# Page\n")
    assert written.endswith(f"text\n{other}")
    assert write_into(written, {"sums": result}) == written


def test_output_is_read_without_hidden_files_and_compared_in_any_order(tmp_path: Path) -> None:
    expected = pa.table({"word": ["a", "b"], "count": [1, 2]})
    pq.write_table(pa.table({"count": [2], "word": ["b"]}), tmp_path / "part-1.parquet")
    pq.write_table(pa.table({"count": [1], "word": ["a"]}), tmp_path / "part-2.parquet")
    pq.write_table(pa.table({"count": [9], "word": ["z"]}), tmp_path / ".part-3.parquet")
    expect_equal(read_output(tmp_path, []), expected, ["word"])


@pytest.mark.parametrize(
    "wrong",
    [{"word": ["a"], "count": [1]}, {"word": ["a", "b"], "count": [1, 3]}, {"word": ["a", "b"], "n": [1, 2]}],
)
def test_output_that_differs_is_refused(wrong: dict[str, list[object]]) -> None:
    with pytest.raises(WrongResultError):
        expect_equal(pa.table(wrong), pa.table({"word": ["a", "b"], "count": [1, 2]}), ["word"])


def test_the_main_table_has_each_contender_with_its_ratios_and_who_is_missing() -> None:
    runs = {OURS: [{"per_s": 100.0, "cpu_s": 3.0}], "peer": [{"per_s": 80.0, "cpu_s": 4.0}]}
    first = summary(job(), Scale(quick=False), runs, {"other": "it cannot be installed"})
    second = summary(job(name="plain"), Scale(quick=False), {OURS: [{"per_s": 1.0}]}, {})
    lines = as_main_table({"sums": first, "plain": second}).splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["sums", OURS, "100", "sums/s", "3.00"],
        ["peer", "80.0", "sums/s", "1.25", "4.00", "0.75"],
        ["plain", OURS, "1.00", "sums/s"],
    ]
    assert lines[4] == "sums: other left out: it cannot be installed"
    assert "Spark" in lines[5]


def test_what_is_markdown_already_goes_into_a_page_as_it_is() -> None:
    page = "<!-- figures: curve -->\nold\n<!-- end -->\n"
    assert "\n| a |\n" in write_into(page, {"curve": {"markdown": "| a |"}})
