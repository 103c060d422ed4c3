"""Whether SQL text is an expression that Spark can read, reported at the user's line.

Problem: `filter("delay > and origin = 'JFK'")` was refused only after Spark had started, with an error
that named a line of the text instead of a line of the application.

Design: the text is divided into tokens and walked through Spark's own grammar
(`api.expressions.sql.grammar`). The error shows the text with a mark below the place, and a remedy if the
mistake is a known one. Only Spark can decide whether columns and functions exist, and whether types fit:
`drivetrain plan --check` asks it.

Invariants:

1. No text is refused that Spark's parser accepts, except one with a bare AND, OR or NOT as a name: Spark
   reads `n = 1 and` as `n = 1` under the name "and", which is never intended.
2. Text in which Spark replaces variables (`${...}`) is not checked.

Called by `api.expressions.columns`, when the first SQL text is written, and by `statement`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from drivetrain.api.expressions.sql.grammar import END, reach
from drivetrain.api.expressions.sql.tokens import NoTokenError, Token, tokens_of
from drivetrain.api.location import caller
from drivetrain.errors import GraphError

_CLOSING: Final = {"(": ")", "[": "]"}
_OPERATORS: Final = ("AND", "OR", "NOT")
_MOST_BEFORE, _MOST_AFTER = 50, 30
"""How much of a long line is shown on the two sides of the mark."""
_GOT: Final = "  got: "
"""The beginning of the line that shows the text in an error."""
_OTHER_LANGUAGES: Final = {
    "&&": "write AND",
    "**": "write power(a, b)",
    "//": "write a div b",
    "None": "write NULL",
}
"""Notation of other languages, and what to write in SQL instead."""


@dataclass(frozen=True)
class Fault:
    """A mistake in SQL text: what is wrong, at which index, and the remedy."""

    what: str
    at: int
    remedy: str


def require_expression(text: str) -> None:
    """Raise `GraphError` unless Spark can read `text` as an SQL expression.

    >>> require_expression("delay > 15 AND origin = 'JFK'")
    >>> require_expression("delay > AND origin = 'JFK'")
    Traceback (most recent call last):
    ...
    drivetrain.errors.GraphError: ...: Spark cannot read this SQL text from 'AND' on
      expected: an SQL expression
      got: delay > AND origin = 'JFK'
                   ^
      remedy: AND needs something on both sides; write a column of that name in backquotes: `AND`
    """
    fault = fault_of(text)
    if fault is not None:
        raise _refused(fault, text, "an SQL expression")


def require_query(text: str) -> None:
    """Raise `GraphError` unless Spark can read `text` as an SQL query.

    >>> require_query("SELECT item FROM this WHERE price > 5")
    """
    # A query in parentheses is an expression, so the grammar of expressions has that of queries.
    fault = fault_of(f"({text}\n)")
    if fault is not None and fault.at == 0:  # our own bracket, because one of the text takes its end
        fault = fault_of(f"({text}")
    if fault is not None:
        at = min(max(fault.at - 1, 0), len(text))
        raise _refused(Fault(fault.what, at, fault.remedy), text, "an SQL query, as in SELECT … FROM this")


def _refused(fault: Fault, text: str, expected: str) -> GraphError:
    return GraphError(
        fault.what, where=str(caller()), expected=expected, got=_marked(text, fault.at), remedy=fault.remedy
    )


def fault_of(text: str) -> Fault | None:
    """The first thing in SQL text that Spark cannot read; None for an expression.

    >>> fault_of("(a + 1").what
    'the ( is never closed in this SQL text'
    """
    if (text.isidentifier() and text.isascii() and text.upper() not in _OPERATORS) or "${" in text:
        return None
    try:
        tokens = tokens_of(text)
    except NoTokenError as error:
        return Fault(error.what, error.at, error.remedy)
    at = reach([*(token.types for token in tokens), (END,)])
    if at is None:
        return _not_quoted(tokens)
    return _at_end(text, tokens) if at == len(tokens) else _at_token(tokens, at)


def _not_quoted(tokens: Sequence[Token]) -> Fault | None:
    """A name that needs backquotes, which Spark's grammar accepts and its parser then refuses."""
    for n, token in enumerate(tokens):
        if token.is_name and not token.text.isascii():
            is_parameter = n > 0 and tokens[n - 1].text == ":"
            is_field = n + 1 < len(tokens) and tokens[n + 1].text.upper() == "FROM"
            if not is_parameter and not is_field:
                return Fault(
                    f"the name {token.text} needs backquotes in SQL text",
                    token.start,
                    f"write `{token.text}`",
                )
    return None


def _at_end(text: str, tokens: Sequence[Token]) -> Fault:
    opened: list[Token] = []
    for token in tokens:
        if token.text in _CLOSING:
            opened.append(token)
        elif token.text in _CLOSING.values() and opened:
            opened.pop()
    if opened:
        bracket = opened[-1].text
        what = f"the {bracket} is never closed in this SQL text"
        return Fault(what, opened[-1].start, f"add a {_CLOSING[bracket]} where it ends")
    words = [token.text.upper() for token in tokens]
    if words.count("CASE") > words.count("END"):
        case = next(token for token in tokens if token.text.upper() == "CASE")
        return Fault("a CASE has no END in this SQL text", case.start, "add END after its last value")
    if not tokens:
        return Fault("SQL text is empty", len(text), "write the name of a column, or an expression")
    last = tokens[-1].text
    return Fault(
        f"this SQL text ends after {last!r}, where something is missing",
        len(text.rstrip()),
        "complete the text, or remove its end"
        + (f"; write a column of that name in backquotes: `{last}`" if last.upper() in _OPERATORS else ""),
    )


def _at_token(tokens: Sequence[Token], at: int) -> Fault:
    token = tokens[at]
    before = tokens[at - 1] if at else None
    what = f"Spark cannot read this SQL text from {token.text!r} on"
    remedy = "write an operator or a comma before it; put names with spaces in backquotes, text in quotes"
    other = [t.text for t in tokens[max(at - 2, 0) : at + 1]]
    meant = [_OTHER_LANGUAGES.get(text) for text in (token.text, "".join(other[-2:]), "".join(other[:-1]))]
    if any(meant):
        remedy = next(filter(None, meant))
    elif token.text.upper() in _OPERATORS:
        sides = "after it" if token.text.upper() == "NOT" else "on both sides"
        remedy = (
            f"{token.text} needs something {sides}; write a column of that name in backquotes: `{token.text}`"
        )
    elif token.text in _CLOSING.values():
        remedy = f"remove the {token.text}, or write what is missing before it"
    elif token.text == "[":
        remedy = "write a list in parentheses: x IN (1, 2); write an array as array(1, 2)"
    elif token.text == ";":
        remedy = "remove it: this is one expression, not a statement"
    elif token.text == "," and not _is_inside(tokens[:at]):
        remedy = "SQL text is one expression: give each expression a text of its own"
    elif not (token.is_operand and before is not None and before.is_operand):
        remedy = f"write what is missing before {token.text!r}, or remove it"
    return Fault(what, token.start, remedy)


def _is_inside(tokens: Sequence[Token]) -> bool:
    """Whether a bracket is open after these tokens."""
    opened = sum(token.text in _CLOSING for token in tokens)
    return opened > sum(token.text in _CLOSING.values() for token in tokens)


def _marked(text: str, at: int) -> str:
    """The line of the text with the index `at`, shortened, and a mark below it."""
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line, place = text[start : len(text) if end < 0 else end].replace("\t", " "), at - start
    if place > _MOST_BEFORE:
        cut = place - _MOST_BEFORE
        line, place = f"…{line[cut:]}", place - cut + 1
    if len(line) > place + _MOST_AFTER:
        line = f"{line[: place + _MOST_AFTER]}…"
    return f"{line}\n{' ' * (len(_GOT) + place)}^"
