"""How text that others wrote reaches a terminal: as it stands, harmless, and without breaking a table.

Problem: names, values, reasons, log lines and tracebacks come from users' data. Read as markup, `[/x]`
raises and `[bold]` disappears; an escape sequence in them commands the terminal; a value of megabytes, or of
a thousand lines, makes a table unreadable.

Design: this module is the only one that imports `Console`, `Table` and `Text` from rich; everything that
prints imports them from here. They never read markup. Control characters become escapes that can be seen
(`\\x1b`): in `Text` and in strings before their width is measured, and once more in what a console is about
to write, for whatever else it was given. Cells are shortened.

Invariants:

1. What is written contains no control character but line ends and tabs, save rich's own, for styles.
2. No text raises, and none changes how another one looks.
3. A cell shows at most `MOST_CHARACTERS` characters and `MOST_LINES` lines, a printed text ten times as much;
   both say how much they leave out.

Called by every command, and by the console sink. `tests/unit/tidy` keeps others from printing past it.
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

# C0 and C1 controls, line and paragraph separators, what turns the direction of text, and half characters.
_HARMFUL: Final = re.compile(
    "\r\n|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with control characters as escapes (`\\x1b`, `\\u202e`); line ends and tabs stay."""
    return _HARMFUL.sub(_escaped, text)


def shortened(text: str, most_characters: int = MOST_CHARACTERS, most_lines: int = MOST_LINES) -> str:
    """The text, or its beginning and how much is left out."""
    kept = "\n".join(text.split("\n", most_lines)[:most_lines])[:most_characters]
    left_out = len(text) - len(kept)
    return f"{kept}… ({left_out:,} more characters)" if left_out else text


def print_line(text: str, file: IO[str] | None = None, *, end: str = "\n", flush: bool = False) -> None:
    """Print a line, or several, to standard output or `file`."""
    print(printable(text), file=file, end=end, flush=flush)


class Text(rich.text.Text):
    """Text with a style; what it is given is printable in it."""

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
        """Add columns of names, which give way to the other columns where there is too little room."""
        for heading in headings:
            self.add_column(heading, overflow="fold")

    def add_column(self, header: RenderableType = "", *parts: Any, **options: Any) -> None:
        """Add a column."""
        super().add_column(_shortened(header), *parts, **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row of strings and texts."""
        super().add_row(*map(_shortened, cells), **options)


class Console(rich.console.Console):
    """Writes to a terminal or a stream without reading markup or emoji names in what it is given."""

    def __init__(self, *, file: IO[str] | None = None, stderr: bool = False, **options: Any) -> None:
        plain = {"markup": False, "emoji": False, "highlight": False}
        super().__init__(file=file, stderr=stderr, **{**options, **plain})

    def print(self, *objects: Any, **options: Any) -> None:
        """Print tables, texts and strings; what is meant to be whole is for `print_line`."""
        most = {"most_characters": 10 * MOST_CHARACTERS, "most_lines": 10 * MOST_LINES}
        super().print(*(_shortened(each, **most) for each in objects), **options)

    def render_str(self, text: str, **options: Any) -> rich.text.Text:
        """Make a string a text, before its width is measured."""
        # Parts of rich ask for markup whatever the console's own setting is.
        return super().render_str(printable(text), **{**options, "markup": False, "emoji": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Give the segments of what is printed; rich's own control segments pass."""
        for segment in super().render(renderable, options):
            if segment.control is None and _HARMFUL.search(segment.text):
                yield Segment(printable(segment.text), segment.style)
            else:
                yield segment


def _shortened(shown: Any, most_characters: int = MOST_CHARACTERS, most_lines: int = MOST_LINES) -> Any:
    if isinstance(shown, str):
        return shortened(shown, most_characters, most_lines)
    if isinstance(shown, rich.text.Text):
        told = shortened(shown.plain, most_characters, most_lines)
        if told != shown.plain:
            return Text(told, shown.style)
    return shown


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character == "\r\n":
        return "\n"
    return f"\\x{ord(character):02x}" if character < "\x80" else f"\\u{ord(character):04x}"
