"""Prints text from users' data to a terminal unchanged, harmlessly, and without breaking tables.

Problem: names, values, reasons, log lines and tracebacks come from users' data. Read as markup, `[/x]`
raises and `[bold]` disappears; an escape sequence in them controls the terminal; a value of megabytes, or of
a thousand lines, makes a table unreadable.

Design: this module is the only one that imports `Console`, `Table` and `Text` from rich; every module that
prints imports them from here. They never parse markup. Control characters become visible escapes (`\\x1b`):
in `Text`, in strings before rich measures their width, and again in everything a console is about to write,
in case it was given another kind of object. Table cells are shortened.

Invariants:

1. The output contains no control characters except line ends, tabs, and rich's own for styles.
2. No text raises, and none changes how another one looks.
3. A cell shows at most `MOST_CHARACTERS` characters and `MOST_LINES` lines, a printed text ten times as much;
   both state how much they leave out.

Called by every command, and by the console sink. `tests/unit/tidy` rejects other ways of printing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import IO, Any, Final

import rich.console
import rich.table
import rich.text
from rich import box
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style

MOST_CHARACTERS: Final = 2_000
MOST_LINES: Final = 40

# C0 and C1 controls, line and paragraph separators, bidirectional controls, and unpaired surrogates.
_HARMFUL: Final = re.compile(
    "\r\n|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with control characters as escapes (`\\x1b`, `\\u202e`); line ends and tabs stay."""
    return _HARMFUL.sub(_escaped, text)


def shortened(text: str, most_characters: int = MOST_CHARACTERS, most_lines: int = MOST_LINES) -> str:
    """Return the text, or its beginning followed by how much is left out."""
    kept = "\n".join(text.split("\n", most_lines)[:most_lines])[:most_characters]
    left_out = len(text) - len(kept)
    return f"{kept}… ({left_out:,} more characters)" if left_out else text


def print_line(text: str, file: IO[str] | None = None, *, end: str = "\n", flush: bool = False) -> None:
    """Print a line, or several, to standard output or `file`."""
    print(printable(text), file=file, end=end, flush=flush)


class Text(rich.text.Text):
    """Text with a style; control characters in it become escapes."""

    def __init__(self, text: str = "", style: str | Style = "", **options: Any) -> None:
        super().__init__(printable(text), style, **options)

    def append(self, text: rich.text.Text | str, style: str | Style | None = None) -> Text:
        """Add text with a style."""
        super().append(printable(text) if isinstance(text, str) else text, style)
        return self

    @classmethod
    def assemble(cls, *parts: str | rich.text.Text | tuple[str, str | Style], **options: Any) -> Text:
        """Join strings, texts and pairs of a string and a style."""
        text = cls(**options)
        for part in parts:
            text.append(*part) if isinstance(part, tuple) else text.append(part)
        return text


class Table(rich.table.Table):
    """A table; its headings and cells are shortened."""

    def __init__(self, *headings: str, **options: Any) -> None:
        super().__init__(*headings, **{"box": box.SIMPLE_HEAD, "pad_edge": False, **options})

    @classmethod
    def of_facts(cls) -> Table:
        """A table without lines and headings."""
        return cls(box=None, padding=(0, 2, 0, 0), collapse_padding=True, show_header=False, show_edge=False)

    def add_names(self, *headings: str) -> None:
        """Add columns of names, which are truncated first when the table is too wide."""
        for heading in headings:
            self.add_column(heading, overflow="fold")

    def add_column(self, header: RenderableType = "", *parts: Any, **options: Any) -> None:
        """Add a column."""
        super().add_column(_shortened(header), *parts, **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row of strings and texts."""
        super().add_row(*map(_shortened, cells), **options)


class Console(rich.console.Console):
    """Writes to a terminal or a stream without interpreting markup or emoji names."""

    def __init__(self, *, file: IO[str] | None = None, stderr: bool = False, **options: Any) -> None:
        plain = {"markup": False, "emoji": False, "highlight": False}
        super().__init__(file=file, stderr=stderr, **{**options, **plain})

    def print(self, *objects: Any, **options: Any) -> None:
        """Print tables, texts and strings, shortened; use `print_line` for a text that must be complete."""
        most = {"most_characters": 10 * MOST_CHARACTERS, "most_lines": 10 * MOST_LINES}
        super().print(*(_shortened(each, **most) for each in objects), **options)

    def render_str(self, text: str, **options: Any) -> rich.text.Text:
        """Turn a string into a `Text`, before rich measures its width."""
        # Parts of rich request markup regardless of the console's own setting.
        return super().render_str(printable(text), **{**options, "markup": False, "emoji": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to print, escaped; rich's own control segments pass unchanged."""
        for segment in super().render(renderable, options):
            if segment.control is None and _HARMFUL.search(segment.text):
                yield Segment(printable(segment.text), segment.style)
            else:
                yield segment


def _shortened(shown: Any, most_characters: int = MOST_CHARACTERS, most_lines: int = MOST_LINES) -> Any:
    if isinstance(shown, str):
        return shortened(shown, most_characters, most_lines)
    if isinstance(shown, rich.text.Text):
        short = shortened(shown.plain, most_characters, most_lines)
        if short != shown.plain:
            return Text(short, shown.style)
    return shown


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character == "\r\n":
        return "\n"
    return f"\\x{ord(character):02x}" if character < "\x80" else f"\\u{ord(character):04x}"
