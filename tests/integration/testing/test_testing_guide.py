"""The tests on the guide's page about testing pass as they are written."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from drivetrain.testing.pytest_plugin import drivetrain_config, start_run

__all__ = ["drivetrain_config", "start_run"]

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "testing.md"
BLOCK = re.compile(r"^```python(?P<kind>[^\n]*)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("spark")
@pytest.mark.nightly("test_new_project runs the tests of a new project the same way")
def test_the_tests_of_the_page_pass(start_run: Any) -> None:
    ran = []
    page: dict[str, Any] = {}
    for block in BLOCK.finditer(GUIDE.read_text(encoding="utf-8")):
        if block["kind"].strip() == "fragment":
            continue
        if block["kind"].strip() != "continued":
            page = {"__name__": "page"}
        known = set(page)
        exec(compile(block["code"], str(GUIDE), "exec"), page)
        for name in [n for n in page if n.startswith("test_") and n not in known]:
            fixtures = inspect.signature(page[name]).parameters
            page[name](**{"start_run": start_run} if fixtures else {})
            ran.append(name)
    assert len(ran) == 7
