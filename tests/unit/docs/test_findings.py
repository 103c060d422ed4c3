"""The guide has a line for every finding, at the place that the finding names."""

from __future__ import annotations

import re
from pathlib import Path

from drivetrain.core.diagnosis import rules
from drivetrain.core.diagnosis.finding import Finding, Severity

ROOT = Path(__file__).resolve().parents[3]
RULES = {
    name
    for module in Path(rules.__file__).parent.glob("*.py")
    for name in re.findall(r'yield Finding\(\s*"([a-z-]+)"', module.read_text())
}


def test_every_rule_has_a_line_in_the_guide_and_every_line_a_rule() -> None:
    page, _, _ = Finding("x", Severity.NOTE, "s", "what", "remedy").guide.partition("#")
    assert set(re.findall(r'<a id="([a-z-]+)">', (ROOT / page).read_text())) == RULES
    assert len(RULES) > 20
