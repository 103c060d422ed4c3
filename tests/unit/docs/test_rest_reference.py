"""The REST reference says what the table of routes says."""

from __future__ import annotations

import runpy

from markdown_pages import ROOT

from drivetrain.console.routes.table import ROUTES


def test_the_reference_is_that_of_the_routes() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "rest_reference.py"), run_name="generator")
    page = (ROOT / "docs" / "guide" / "rest.md").read_text(encoding="utf-8")
    assert page == made["written"](), "run scripts/rest_reference.py"
    headings = [line for line in page.splitlines() if line.startswith("### `")]
    assert sorted(headings) == sorted(f"### `{route.method} {route.path}`" for route in ROUTES)
