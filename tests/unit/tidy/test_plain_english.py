"""Pages for users, errors, settings and help texts avoid phrases that readers stumbled over.

`BANNED` is the only list. A phrase is a regular expression, with what to write instead. The glossary
(`docs/glossary.md`) has the words to use.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from source_tree import ROOT, Module, modules

from drivetrain.cli.main import app as command_line
from drivetrain.config import ALL_KEYS

BANNED = {
    r"\b(?:go|goes) on where\b": "continue(s) where",
    r"\b(?:go|goes) on (?:behind|without)\b": "continue(s) after, keep(s) running without",
    r"\b(?:is|are) made again\b": "is repaired; is computed again",
    r"\b(?:can be|cannot be|is|are) told\b": "is announced, is reported, can be distinguished",
    r"\b(?:of now|of then)\b": "current; of that time",
    r"\bunless (?:told|said) otherwise\b": "by default",
    r"\bunless it says otherwise\b": "unless it has a zone",
    r"\basked twice\b": "one-pass sources",
    r"\b(?:is|it is) none\b(?! of)": "is not a ...",
    r"\bby itself\b": "automatically, alone",
    r"\ball the same\b": "nevertheless, even then",
    r"\bno room\b": "no space",
    r"\bsomebody\b": "someone, another process, or the process itself",
    r"\ba holder that\b": "a process that",
    r"\bdoctor` says\b": "doctor` shows",
    r"\bplan(?: --check)?` says\b": "plan` shows",
    r"\bnever to both\b": "either ... or",
    r"\bwritten out\b": "a literal secret",
    r"\bbehind (?:the|a) (?:channel|fragment|operator|barrier|union|savepoint)\b": "after the ...",
    r"\bset aside\b": "put into the dead letters",
    r"(?:^|[.:;] )(?:Who|Whoever) [a-z]+s\b": "a noun: the reader, a process that ...",
}
"""What not to write, and what to write instead."""

PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "glossary.md",
    ROOT / "docs" / "security.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
]


def found_in(text: str) -> list[str]:
    """The banned phrases of a text, each with its replacement."""
    flat = re.sub(r"\s+", " ", text)
    return [f"{m[0]!r}: write {instead}" for rx, instead in BANNED.items() for m in re.finditer(rx, flat)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_for_users_have_no_banned_phrase(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert found_in(prose) == []


def _errors(module: Module) -> Iterator[str]:
    """The texts of what a module raises: of calls of an error's class, and of remedies."""
    for call in ast.walk(module.tree):
        if not isinstance(call, ast.Call):
            continue
        keywords = {k.arg: k.value for k in call.keywords}
        texts = [keywords[name] for name in ("remedy", "expected") if name in keywords]
        if ast.unparse(call.func).endswith("Error"):
            texts += call.args
        for text in texts:
            parts = [n.value for n in ast.walk(text) if isinstance(n, ast.Constant)]
            yield " … ".join(str(part) for part in parts)


def test_errors_have_no_banned_phrase() -> None:
    found = [
        f"{module.name}: {phrase}"
        for module in modules().values()
        for text in _errors(module)
        for phrase in found_in(text)
    ]
    assert found == []


def test_descriptions_of_configuration_keys_have_no_banned_phrase() -> None:
    assert {key.name: found for key in ALL_KEYS.values() if (found := found_in(key.doc))} == {}


def test_help_texts_have_no_banned_phrase() -> None:
    group: Any = typer.main.get_command(command_line)
    texts = {name: [command.help or ""] for name, command in group.commands.items()}
    for name, command in group.commands.items():
        texts[name] += [getattr(option, "help", None) or "" for option in command.params]
    assert {name: found for name, said in texts.items() if (found := found_in(" | ".join(said)))} == {}


def test_every_banned_phrase_is_recognised() -> None:
    examples = (
        "it goes on where it stopped",
        "lines are made again",
        "messages of now",
        "Who reads the file",
    )
    assert [text for text in examples if not found_in(text)] == []
