"""Reads pages of Markdown: fenced blocks with their info strings, links, anchors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6}\s+(?P<title>.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line of its first line of code, its info string and its code."""

    page: Path
    line: int
    info: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """The pages that users read first: the README and the guide."""
    return [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]


def all_pages() -> list[Path]:
    """Every page of the project."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, m.start()) + 2, m["info"].strip(), m["code"])
        for m in _FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """The targets of a page's links and pictures that are not addresses in the network."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    return [m["target"] for m in _LINK.finditer(text) if not re.match(r"[a-z]+:", m["target"])]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    return {
        re.sub(r"[^\w\- ]", "", m["title"].lower()).replace(" ", "-") for m in _HEADING.finditer(prose(page))
    }
