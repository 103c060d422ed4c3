"""Names of classes and modules that are riddles without their docstrings are refused.

A class is a noun (`ChangeRequests`), an event says what happened (`BatchCommitted`), an effect or a command
what to do (`RecordOutcome`). A clause or a bare participle is none of these: names such as AskedChanges,
LookNow, Known or CodeThere say nothing where they are used, and a stack trace does not show the docstring.
Write what the thing is: a request, a reply, a report, a state, a record.
"""

from __future__ import annotations

import ast
import re

import pytest
from source_tree import modules

FIRST_WORDS = {"Asked", "Kept", "Known", "Let", "Look", "Looked", "Say", "Tell"}
"""Participles in place of a noun, and effects that do not say whom they tell or show what."""
LAST_WORDS = {"Again", "Later", "Now", "Of", "There", "This"}
"""Ends of clauses."""
WHOLE_NAMES = {
    "At",
    "Fate",
    "Given",
    "Happening",
    "Here",
    "Manner",
    "Said",
    "Seen",
    "Standing",
    "To",
    "Underway",
}
"""Words that need another one to mean something."""
MODULE_WORDS = {"asked", "few", "guests", "kept", "known", "other"}
"""First words of modules that name what happened to a thing, or how many there are, but not the thing."""

STILL_CLASSES = {"JoinAsOf"}  # SQL's word for this join
STILL_MODULES = {"dataframe_calls", "kept"}
"""Exceptions; the lists only get shorter."""


def is_riddle(name: str) -> bool:
    """Whether a class may not have this name."""
    words = re.findall(r"[A-Z][a-z0-9]*", name)
    return name.lstrip("_") in WHOLE_NAMES or (
        bool(words) and (words[0] in FIRST_WORDS or words[-1] in LAST_WORDS)
    )


@pytest.mark.parametrize(
    "name", ["AskedChanges", "Known", "_Kept", "LookNow", "FollowThis", "At", "OfApp_Of"]
)
def test_riddles_are_found(name: str) -> None:
    assert is_riddle(name)


@pytest.mark.parametrize("name", ["ChangeRequests", "Attempt", "TopicState", "Letters", "Locked", "TermSeen"])
def test_nouns_are_none(name: str) -> None:
    assert not is_riddle(name)


def test_classes_are_named_by_what_they_are() -> None:
    found = [
        f"{name}.{kind.name}"
        for name, module in modules().items()
        for kind in module.nodes
        if isinstance(kind, ast.ClassDef) and is_riddle(kind.name) and kind.name not in STILL_CLASSES
    ]
    assert found == []


def test_modules_are_named_by_what_they_contain() -> None:
    bases = {name.rpartition(".")[2] for name in modules()}
    assert {base for base in bases if base.split("_")[0] in MODULE_WORDS} - STILL_MODULES == set()
