"""The guide's worked example runs as it is printed, and prints what the guide says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "purgatory.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_worked_example_prints_what_the_guide_says(capsys: pytest.CaptureFixture[str]) -> None:
    program = "\n".join(blocks("python"))
    exec(compile(program, str(GUIDE), "exec"), {"__name__": "guide"})
    assert capsys.readouterr().out == "".join(blocks("text"))
