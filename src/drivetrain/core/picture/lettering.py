"""Estimates the width of a text in a picture, without a font.

Design: advance widths of DejaVu Sans, the widest of the common sans-serif fonts, rounded up in classes. In
another font the text is narrower than its box, never wider.

Called by `core.picture.labels`.
"""

from __future__ import annotations

import unicodedata
from typing import Final

FONT_FAMILY: Final = "'DejaVu Sans', Verdana, 'Segoe UI', Helvetica, Arial, sans-serif"
BOLD_FACTOR: Final = 1.15

_CLASSES: Final[tuple[tuple[str, float], ...]] = (
    (" ',.IJijl", 0.33),
    ("-/:;\\f|·", 0.38),
    ("!()[]rt", 0.42),
    ('"*_`sz', 0.53),
    ("?Lc", 0.58),
    ("FPTYaekovxy", 0.63),
    ("$0123456789EKSbdghnpqu{}", 0.66),
    ("ABCRVXZ", 0.71),
    ("DGHNU", 0.78),
    ("&OQw", 0.83),
    ("#+<=>M^~→×", 0.88),
    ("%m", 0.98),
)
_WIDTHS: Final = {character: width for characters, width in _CLASSES for character in characters}
_OTHER: Final = 1.02


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """An upper bound for the width of `text`, in the unit of `size`, the font size."""
    ems = sum(
        0.0 if unicodedata.combining(character) else _WIDTHS.get(character, _OTHER) for character in text
    )
    return ems * size * (BOLD_FACTOR if bold else 1.0)


def fitted(text: str, size: float, width: float, *, bold: bool = False) -> str:
    """Return `text`, or as much of its beginning as fits into `width` with an ellipsis."""
    if text_width(text, size, bold=bold) <= width:
        return text
    kept = len(text)
    while kept and text_width(f"{text[:kept].rstrip()}…", size, bold=bold) > width:
        kept -= 1
    return f"{text[:kept].rstrip()}…"


def wrapped(text: str, size: float, width: float, lines: int) -> list[str]:
    """Break `text` between words into at most `lines` lines; the rest is cut off."""
    made = [""]
    words = text.split()
    while words:
        longer = f"{made[-1]} {words[0]}".strip()
        if not made[-1] or text_width(longer, size) <= width:
            made[-1] = longer
            words.pop(0)
        elif len(made) < lines:
            made.append("")
        else:
            made[-1] = " ".join([made[-1], *words])
            break
    return [fitted(line, size, width) for line in made]
