"""The tokens of SQL text, as Spark's lexer produces them.

Keywords, operators and brackets come with the grammar. Strings, numbers, names and comments are patterns in
this module; the longest match wins, and among equal ones the first.

Tokens that Spark's lexer distinguishes by a setting are accepted as either.

Called by `api.expressions.sql.check`.
Source: `SqlBaseLexer.g4` of Apache Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from drivetrain.api.expressions.sql.grammar import TokenTypes, grammar

_DECIMAL: Final = r"(?:\d+\.\d*|\.\d+)"
_EXPONENT: Final = r"e[+-]?\d+"
_ALONE: Final = r"(?![a-z0-9_])"
_PATTERNS: Final = (
    ("STRING_LITERAL", r"'(?:[^'\\]|\\.|'')*'|r'[^']*'|r\"[^\"]*\""),
    ("DOUBLEQUOTED_STRING", r'"(?:[^"\\]|\\.|"")*"'),
    ("BACKQUOTED_IDENTIFIER", r"`(?:[^`]|``)*`"),
    ("BIGINT_LITERAL", r"\d+l"),
    ("SMALLINT_LITERAL", r"\d+s"),
    ("TINYINT_LITERAL", r"\d+y"),
    ("INTEGER_VALUE", r"\d+"),
    ("EXPONENT_VALUE", rf"\d+{_EXPONENT}|{_DECIMAL}{_EXPONENT}{_ALONE}"),
    ("DECIMAL_VALUE", _DECIMAL + _ALONE),
    ("FLOAT_LITERAL", rf"\d+(?:{_EXPONENT})?f|{_DECIMAL}(?:{_EXPONENT})?f{_ALONE}"),
    ("DOUBLE_LITERAL", rf"\d+(?:{_EXPONENT})?d|{_DECIMAL}(?:{_EXPONENT})?d{_ALONE}"),
    ("BIGDECIMAL_LITERAL", rf"\d+(?:{_EXPONENT})?bd|{_DECIMAL}(?:{_EXPONENT})?bd{_ALONE}"),
    ("IDENTIFIER", r"[^\W\d_]+://[\w/\-.?=&#%]+|\w+"),
)
_BETWEEN: Final = r"(?:\s+|--(?:\\\n|[^\r\n])*)*"
_COMMENT_ENDS: Final = r"/\*(?!\+)|\*/"
_SYMBOL: Final = r"[^\w\s]{1,3}|@v"
_QUOTES: Final = {"'": "quote", '"': "quote", "`": "backquote"}
_NESTING: Final = ("ARRAY", "MAP", "STRUCT")


@dataclass(frozen=True)
class Token:
    """A piece of SQL text: its possible types, and where it begins."""

    types: TokenTypes
    text: str
    start: int
    is_name: bool = False

    @property
    def is_operand(self) -> bool:
        """Whether it is a name, a keyword, a number or a string, not an operator or a bracket."""
        return self.text[0].isalnum() or self.text[0] in "_'\"`"


class NoTokenError(ValueError):
    """The text cannot be divided into tokens: `what` is wrong at the index `at`; `remedy` is advice."""

    def __init__(self, what: str, at: int, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.at = at
        self.remedy = remedy


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when the first text is read, which keeps the import of Drivetrain fast."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def tokens_of(text: str) -> list[Token]:
    """The tokens of SQL text, without spaces and comments; raises `NoTokenError`."""
    found: list[Token] = []
    types_open = 0
    at = _between(text, 0)
    while at < len(text):
        token = _token(text, at, found, types_open)
        types_open += token.text.upper() in _NESTING
        types_open -= token.text == ">" and types_open > 0
        found.append(token)
        at = _between(text, at + len(token.text))
    return found


def _token(text: str, at: int, before: list[Token], types_open: int) -> Token:
    known = grammar()
    name, piece = "", ""
    for kind, pattern in _PATTERNS:
        match = _compiled(pattern).match(text, at)
        if match is not None and len(match[0]) > len(piece):
            name, piece = kind, match[0]
    symbol = _compiled(_SYMBOL).match(text, at)
    written = symbol[0] if symbol else ""
    closes_types = types_open and written.startswith(">>")
    while written and (written.upper() not in known.fixed or (closes_types and written.startswith(">>"))):
        written = written[:-1]
    if len(written) > len(piece):
        return Token((known.fixed[written.upper()],), written, at)
    if not piece:
        if text[at] in _QUOTES:
            what = f"the {_QUOTES[text[at]]} {text[at]} is never closed in this SQL text"
            raise NoTokenError(what, at, f"add a {text[at]} where it ends")
        what = f"{text[at]!r} has no meaning in SQL text"
        raise NoTokenError(
            what, at, "remove it; put names with such characters in backquotes, and text in quotes"
        )
    word = piece.upper()
    if name != "IDENTIFIER" or word not in known.fixed:
        return Token((known.types[name],), piece, at, is_name=name == "IDENTIFIER")
    if word in known.as_names and before and before[-1].text.upper() in (".", "AS"):
        return Token((known.fixed[word], known.as_names[word]), piece, at)
    return Token((known.fixed[word],), piece, at)


def _between(text: str, at: int) -> int:
    """Where the next token begins: after spaces and comments, which may be nested."""
    while True:
        match = _compiled(_BETWEEN).match(text, at)
        at = at if match is None else match.end()
        if not text.startswith("/*", at) or text.startswith("/*+", at):
            return at
        opened, depth, end = at, 0, at
        while depth or end == at:
            mark = _compiled(_COMMENT_ENDS).search(text, end)
            if mark is None:
                raise NoTokenError(
                    "a comment is never closed in this SQL text", opened, "add */ where it ends"
                )
            depth += 1 if mark[0] == "/*" else -1
            end = mark.end()
        at = end
