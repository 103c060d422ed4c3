"""Every piece of code in the guide to actors runs, one after the other, and prints what the guide says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from drivetrain.actor import actor, message

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "actors.md"


def test_the_code_in_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    namespace: dict[str, object] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), namespace)
    assert capsys.readouterr().out.split() == ["5", "/user/counter"]


def test_the_examples_in_docstrings_run() -> None:
    for module in (actor, message):
        result = doctest.testmod(module)
        assert result.attempted > 0
        assert result.failed == 0
