"""The example notebook runs from top to bottom, and shows what it says."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.nightly("test_run_page, test_preview and the unit tests of pictures")
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    folder = tmp_path_factory.mktemp("notebook")
    shutil.copy(EXAMPLES / "flights.py", folder)
    notebook = nbformat.read(EXAMPLES / "flights.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=550, resources={"metadata": {"path": str(folder)}})
    client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable  # this Python, whatever kernels the machine has
    client.execute()
    return folder, [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any, kind: str) -> list[str]:
    return [output["data"][kind] for output in cell.outputs if kind in output.get("data", {})]


def the_cell(cells: list[Any], source: str) -> Any:
    [found] = [cell for cell in cells if cell.source.endswith(source)]
    return found


def test_previews_are_tables_and_applications_are_pictures(executed: tuple[Path, list[Any]]) -> None:
    _, cells = executed
    [table] = shown(the_cell(cells, "app.preview(flights, rows=5)"), "text/html")
    assert table.count("<tr>") == 6
    assert "EWR" in table
    [windows] = shown(the_cell(cells, "app.preview(hourly, rows=5)"), "text/html")
    assert "window_start" in windows
    [picture] = shown(the_cell(cells, "\napp"), "image/svg+xml")
    assert picture.startswith("<svg")


def test_a_run_shows_how_it_went(executed: tuple[Path, list[Any]]) -> None:
    _, cells = executed
    [page] = shown(the_cell(cells, "\nrunning"), "text/html")
    assert "<td>hourly</td>" in page
    assert "messages" in page
    assert shown(the_cell(cells, "result.outcome.value"), "text/plain") == ["'finished'"]


def test_results_agree_with_one_query_over_the_same_flights(executed: tuple[Path, list[Any]]) -> None:
    folder, cells = executed
    files = sorted((folder / ".drivetrain" / "flights-data").glob("flights-0[01].parquet"))
    flights = pq.read_table(files)
    delayed = (
        flights.filter(pc.greater(flights["delay"], 0)).group_by("origin").aggregate([([], "count_all")])
    )
    wanted = dict(zip(delayed["origin"].to_pylist(), delayed["count_all"].to_pylist(), strict=True))
    results = pq.read_table(folder / "january-out").group_by("origin").aggregate([("flights", "sum")])
    got = dict(zip(results["origin"].to_pylist(), results["flights_sum"].to_pylist(), strict=True))
    assert got == wanted
    assert shown(the_cell(cells, "\ntested"), "text/plain") == [
        "[{'origin': 'EWR', 'flights': 2, 'delay': 3.0}]"
    ]


def test_nothing_else_is_shown_with_a_preview(executed: tuple[Path, list[Any]]) -> None:
    _, cells = executed
    outputs = the_cell(cells, "app.preview(hourly, rows=5)").outputs
    assert [output.output_type for output in outputs if output.output_type != "stream"] == ["execute_result"]
    assert "hourly, for" in outputs[-1]["data"]["text/plain"]
