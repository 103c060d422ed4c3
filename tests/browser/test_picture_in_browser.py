"""The picture of a plan as a real browser shows it, with the fonts that this machine has."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome

from drivetrain.cli.views.picture import draw
from drivetrain.core.plan.plan import Plan
from example_plans import PLANS

# What the browser has laid out: for every group of a class its box, its texts, and whether a text is what one
# sees at its own middle (and not something drawn over it).
_MEASURE = """
const box = (one) => { const r = one.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
const told = (text) => ({says: text.textContent, box: box(text)});
const seen = (text) => {
  text.scrollIntoView({block: 'center', inline: 'center'});
  const r = text.getBoundingClientRect();
  return document.elementsFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2)[0] === text;
};
const groups = [...document.querySelectorAll('g[data-id]')].map((group) => ({
  kind: group.getAttribute('class'),
  id: group.getAttribute('data-id'),
  box: box(group.querySelector(':scope > rect.box')),
  texts: [...group.querySelectorAll(':scope > text')].map(told),
}));
const all = [...document.querySelectorAll('text')].map(told);
const page = box(document.documentElement);
const labels = [...document.querySelectorAll('g[data-id] > text')];
return {groups, all, page, labels: labels.map((text) => [text.textContent, seen(text)])};
"""


@dataclass(frozen=True)
class Box:
    left: float
    top: float
    right: float
    bottom: float

    def holds(self, other: Box) -> bool:
        return (
            self.left <= other.left
            and self.top <= other.top
            and self.right >= other.right
            and self.bottom >= other.bottom
        )

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> Plan:
    return PLANS[request.param]()


@pytest.fixture
def shown(plan: Plan, browser: Chrome, tmp_path: Path) -> dict[str, Any]:
    picture = tmp_path / "plan.svg"
    picture.write_text(draw(plan), encoding="utf-8")
    browser.get(picture.as_uri())
    return browser.execute_script(_MEASURE)


def test_every_label_is_visible_and_inside_its_box(plan: Plan, shown: dict[str, Any]) -> None:
    groups = {(group["kind"], group["id"]): group for group in shown["groups"]}
    for id in plan.operators:
        group = groups["processor", id]
        assert group["texts"][0]["says"].rstrip("…") in id
        assert len(group["texts"]) >= 2, "a processor shows its name and what it does"
    for group in shown["groups"]:
        for text in group["texts"]:
            assert Box(*group["box"]).holds(Box(*text["box"])), f"{group['id']}: {text['says']}"
    hidden = [says for says, seen in shown["labels"] if not seen]
    assert not hidden


def test_no_two_texts_overlap_and_none_leaves_the_picture(shown: dict[str, Any]) -> None:
    texts = [(text["says"], Box(*text["box"])) for text in shown["all"]]
    assert not [(one, other) for (one, a), (other, b) in combinations(texts, 2) if a.overlaps(b)]
    assert all(Box(*shown["page"]).holds(box) for _, box in texts)


def test_no_two_processors_overlap_and_each_is_inside_its_fragment(plan: Plan, shown: dict[str, Any]) -> None:
    boxes = {(group["kind"], group["id"]): Box(*group["box"]) for group in shown["groups"]}
    processors = {id: box for (kind, id), box in boxes.items() if kind == "processor"}
    assert not [pair for pair in combinations(processors.values(), 2) if pair[0].overlaps(pair[1])]
    for fragment in plan.fragments:
        for id in fragment.processors:
            assert boxes["fragment", fragment.id].holds(processors[id])


def test_browser_finds_nothing_wrong_with_the_file(
    plan: Plan, shown: dict[str, Any], browser: Chrome
) -> None:
    assert browser.execute_script("return document.documentElement.tagName") == "svg"
    assert browser.execute_script("return document.querySelectorAll('parsererror').length") == 0
    width = browser.execute_script("return document.documentElement.getAttribute('width')")
    assert shown["page"][2] - shown["page"][0] == pytest.approx(float(width), abs=1)
