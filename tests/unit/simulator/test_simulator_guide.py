"""The guide's protocol test passes as it is written, and finds the mistake that the guide tells to make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "simulator.md"
MARGIN = " " * 16


def code() -> str:
    blocks = re.findall(
        r"^```python[^\n]*\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 4
    return "\n".join(blocks)


def test_the_guides_code_runs() -> None:
    exec(compile(code(), str(GUIDE), "exec"), {"__name__": "guide"})


@pytest.mark.parametrize(
    "line",
    [
        f'{MARGIN}await self.disk.sync("log")\n{MARGIN}self.values[key] = value\n',
        '        await self.disk.sync("log")\n\n',
    ],
)
def test_without_a_sync_a_value_is_lost_and_a_seed_says_when(line: str) -> None:
    source = code()
    assert source.count(line) == 1
    broken = source.replace(line, line.replace('await self.disk.sync("log")', "pass"))
    with pytest.raises(AssertionError) as caught:
        exec(compile(broken, str(GUIDE), "exec"), {"__name__": "guide"})
    assert re.search(r"DRIVETRAIN_SEED=\d+", "\n".join(caught.value.__notes__))
