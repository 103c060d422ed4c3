"""Pages for users, errors, settings, help texts, docstrings, comments and names avoid phrases that readers
stumbled over.

`BANNED` is the list for all texts, `BANNED_IN_CODE` has more for docstrings and comments. A phrase is a
regular expression, with what to write instead. The glossary (`docs/glossary.md`) has the words to use.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main
from prose import prose_of
from source_tree import ROOT, Module, modules

from drivetrain.cli.main import app as command_line
from drivetrain.config import ALL_KEYS

BANNED = {
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
    r"\bbehind (?:the (?:state|sources|trunk)|sources|processors|tumbling|other|one|it)\b": "after the ...",
    r"\b(?:go|goes|going|went) on\b(?! top)": "continue(s), keep(s) running",
    r"\bthat (?:go|goes)(?= (?:away|with it)\b|[.,:;)])": "that is removed",
    r"\banew\b": "again",
    r"\bset aside\b": "put into the dead letters",
    r"(?:^|[.:;] )(?:Who|Whoever) [a-z]+s\b": "a noun: the reader, a process that ...",
    r"\bsays (?:how|what|why|so|where|when|which|whether)\b": "shows, names, states, is the reason",
    r"\b(?:go|goes|going) over to\b": "switches to, adopts",
    r"\bat a time of the messages\b": "at an event time",
    r"\b(?:came|comes|became|becomes) of (?:it|them)\b": "the outcome, the results",
    r"\btaken for dead\b": "wrongly considered dead",
    r"\bnone (?:is )?needed\b": "nothing to do",
    r"\bsay --": "use --...",
    r"\bin clear\b": "unencrypted",
}
"""What not to write, and what to write instead."""

BANNED_IN_CODE = {
    r"\btold\b": "sent, reported, announced, recorded, persisted, shown",
    r"\bheard\b": "received, learned",
    r"\bhears? of\b": "receives, learns of",
    r"\b(?:is|are|was|were|has|have|as) said\b": "sent, reported, recorded, stated",
    r"\bsays (?:true|false|True|False)\b": "is true, returns True",
    r"\bmade (?:again|anew)\b": "repaired, created again",
    r"\b(?:anybody|everybody)\b": "the process or user that is meant",
    r"\bin the making\b": "under construction",
    r"\bat the door\b": "immediately, on arrival",
    r"\b(?:message|work|handler|one) in hand\b": "current, running",
    r"\b[Tt]akes? note of\b": "record(s), handle(s)",
    r"\blet(?:s|ting)? go of\b": "drop(s), release(s)",
    r"\b[Hh]armless when\b": "no effect when",
    r"\bfor people\b": "for users, text for errors",
    r"\bmakes? no sense\b": "out of range, invalid",
    r"\bcannot be (?:had|meant)\b": "is impossible, is invalid",
    r"\bthe present (?:one|instance|state|phase|step|life|incarnation)\b": "the current ...",
    r"\bis no more\b": "is gone",
    r"\bsay(?:s)? goodbye\b": "close(s) the session",
    r"\bgood order\b": "properly",
}
"""More phrases that docstrings and comments do not contain: of these, pages may use some with their own
meaning."""

ALLOWED_IN_CODE = frozenset((r"\b(?:is|it is) none\b(?! of)", r"\bby itself\b"))
"""Phrases of `BANNED` that are right in docstrings: "None if there is none", "what a sink does by itself"."""

IN_CODE = {rx: instead for rx, instead in BANNED.items() if rx not in ALLOWED_IN_CODE} | BANNED_IN_CODE

BANNED_NAMES = frozenset(("told", "heard", "said"))
"""Words that are no part of a name: a name is for what it holds (`rendered`, `parsed`, `report`)."""

NOT_CLEAN_YET: tuple[str, ...] = ()
"""Packages and modules that the checks of code leave out."""

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "glossary.md",
    ROOT / "docs" / "security.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
]


SYNONYMS = {
    r"\b(?:topolog(?:y|ies)|DAGs?|vert(?:ex|ices)|dataflows?)\b": "graph, processor",
    r"\bdownstream\b": "after it, its readers, its subscribers",
    r"\blate (?:data|records?|events?|rows?)\b": "late messages",
    r"\bstragglers?\b": "late messages, a partition that lags",
    r"\bfail-?overs?\b": "restart, another leader",
    r"\b(?:job|task) ?managers?\b": "application master, executor",
    r"\bsub-?tasks?\b": "instance",
    r"\bdead[- ]letter (?:queues?|topics?)\b": "dead letters",
}
"""Other systems' words for what the glossary has a term for."""
COMPARISONS = {"dashboard.md": {"subtask", "late records"}}
"""Pages that describe other systems, with their words."""

TRANSCRIPTS = sorted((ROOT / "tests" / "unit" / "transcripts").glob("*.txt"))
"""What cores do, as text: the comments are for readers."""


def found_in(text: str, banned: Mapping[str, str] = BANNED) -> list[str]:
    """The banned phrases of a text, each with its replacement."""
    flat = re.sub(r"\s+", " ", text)
    return [f"{m[0]!r}: write {instead}" for rx, instead in banned.items() for m in re.finditer(rx, flat)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_for_users_have_no_banned_phrase(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert found_in(prose) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_the_terms_of_the_glossary(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = found_in(prose, SYNONYMS)
    assert [f for f in found if f.split("'")[1] not in COMPARISONS.get(page.name, ())] == []


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda file: file.name)
def test_comments_of_transcripts_have_no_banned_phrase(transcript: Path) -> None:
    comments = re.findall(r"^#(.*)", transcript.read_text(encoding="utf-8"), re.MULTILINE)
    assert comments
    assert found_in(" ".join(comments), IN_CODE) == []


def _errors(module: Module) -> Iterator[str]:
    """The texts of what a module raises: of calls of an error's class, and of remedies."""
    for call in module.nodes:
        if not isinstance(call, ast.Call):
            continue
        keywords = {k.arg: k.value for k in call.keywords}
        texts = [keywords[name] for name in ("remedy", "expected", "got") if name in keywords]
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
        "whatever is behind the state",
    )
    assert [text for text in examples if not found_in(text)] == []
    assert found_in("late records reach the dead letter queue", SYNONYMS)


def _names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """The names that a module defines or uses, each with its line."""
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.keyword(arg=str(name)) | ast.alias(name=name):
                yield node.lineno, name


def _banned_name(name: str) -> bool:
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return not BANNED_NAMES.isdisjoint(part.lower() for part in parts)


def _clean_modules() -> list[Module]:
    return [
        m for m in modules().values() if not f"{m.name}.".startswith(tuple(f"{n}." for n in NOT_CLEAN_YET))
    ]


def test_docstrings_and_comments_have_no_banned_phrase() -> None:
    found = [
        f"{module.name}:{line}: {phrase}"
        for module in _clean_modules()
        for line, text in module.prose
        for phrase in found_in(text, IN_CODE)
    ]
    assert found == []


def test_names_have_no_banned_word() -> None:
    found = {
        f"{module.name}:{line}: {name}"
        for module in _clean_modules()
        for line, name in _names(module.nodes)
        if _banned_name(name)
    }
    assert sorted(found) == []


def test_modules_that_are_left_out_exist() -> None:
    known = modules()
    assert [name for name in NOT_CLEAN_YET if name not in known] == []


def test_phrases_and_names_in_code_are_recognised() -> None:
    text = '''"""A module."""

LIMIT = 1  # nobody told it
"""What everybody may take."""

# A comment that goes
# on here.
'''
    assert [
        (line, found_in(prose, IN_CODE)) for line, prose in prose_of(text, ast.walk(ast.parse(text)))
    ] == [
        (1, []),
        (4, ["'everybody': write the process or user that is meant"]),
        (3, ["'told': write sent, reported, announced, recorded, persisted, shown"]),
        (6, ["'goes on': write continue(s), keep(s) running"]),
    ]
    names = ("_told", "told_ms", "LastHeard", "said", "untold", "aforesaid", "headline")
    assert [name for name in names if _banned_name(name)] == ["_told", "told_ms", "LastHeard", "said"]
