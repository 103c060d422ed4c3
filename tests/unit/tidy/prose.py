"""The prose of modules: docstrings, strings after attributes, and comments."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator


def prose_of(text: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Docstrings, strings after attributes, and comments of a module's text, each with its line.

    Neighbouring comment lines are one comment.
    """
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str(string))):
                yield node.lineno, string
    comments: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, comment = token.start[0], token.string.lstrip("#").strip()
            if comments and token.line.strip().startswith("#") and _follows(comments[-1], line):
                first, before = comments.pop()
                comments.append((first, f"{before}\n{comment}"))
            else:
                comments.append((line, comment))
    yield from comments


def _follows(comment: tuple[int, str], line: int) -> bool:
    return comment[0] + comment[1].count("\n") + 1 == line
