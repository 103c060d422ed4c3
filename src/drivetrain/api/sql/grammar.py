"""The grammar of Spark's SQL expressions, and how far a text follows it.

Problem: whether Spark can read an expression is known only to Spark's parser, which needs Java. Any other
parser of SQL refuses texts that Spark takes.

Design: `expression_grammar.json` has Spark's own rules, taken from the pinned PySpark by
`scripts/spark_grammar.py`: a small automaton for each rule, over tokens and other rules. `reach` walks all
paths through them at once, token by token, and builds no tree. A call of a rule at a token is shared by all
who call it there, so the work grows with the length of the text, not with the number of readings. Spark
decides some readings by conditions (priorities of operators, settings); they are left out, so what Spark's
parser takes is always taken here.

Invariants:

1. `reach` returns None for every text that Spark's parser takes, except a bare AND, OR or NOT as a name.
2. Otherwise the tokens before the one it returns are the beginning of some expression.

Called by `api.sql.check` and `api.sql.tokens`.
Source: E. Scott and A. Johnstone, GLL Parsing (2010), without the tree.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

END: Final = -1
"""The type of the token behind the last one."""
TokenTypes: TypeAlias = tuple[int, ...]
"""What a token may be: one type, or two for a keyword that may be a name here."""


@dataclass(frozen=True)
class Arrows:
    """Where a state of a rule leads: with a token of a set, and with another rule."""

    ends: bool
    tokens: tuple[tuple[frozenset[int], int], ...]
    rules: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Rule:
    """A rule: the tokens that can begin it, whether it can be empty, and its states, from the first on."""

    first: frozenset[int]
    empty: bool
    states: tuple[Arrows, ...]


@dataclass(frozen=True)
class Grammar:
    """The rules, of which the first one is an expression, and how texts of tokens are called."""

    rules: tuple[Rule, ...]
    fixed: dict[str, int]
    types: dict[str, int]
    as_names: dict[str, int]


@dataclass(eq=False)
class Call:
    """A rule that begins at a token: who goes on when it ends, and whether it ended where it began."""

    rule: int
    returns: list[tuple[int, Call]] = field(default_factory=list)
    is_empty: bool = False


@cache
def grammar() -> Grammar:
    """The grammar of the pinned PySpark; read once, in a few milliseconds."""
    read = json.loads(Path(__file__).with_name("expression_grammar.json").read_text(encoding="utf-8"))
    sets = [_numbers(text) for text in read["sets"]]
    rules = tuple(
        Rule(
            sets[first],
            bool(empty),
            tuple(
                Arrows(bool(ends), tuple((sets[n], to) for n, to in tokens), tuple(map(tuple, calls)))
                for ends, tokens, calls in states
            ),
        )
        for first, empty, states in read["rules"]
    )
    return Grammar(rules, read["fixed"], read["types"], read["as_names"])


def reach(tokens: Sequence[TokenTypes]) -> int | None:
    """The index of the first token that cannot stand where it stands; None for an expression."""
    rules = grammar().rules
    items = [(0, Call(0))]
    for at, types in enumerate(tokens):
        items = _step(rules, items, types)
        if not items:
            return at
    return None


def _step(rules: Sequence[Rule], items: list[tuple[int, Call]], types: TokenTypes) -> list[tuple[int, Call]]:
    """Where all paths stand after a token, given where they stand before it."""
    called: dict[int, Call] = {}
    seen, after = set(items), set()
    for state, call in items:  # grows while it is read
        arrows = rules[call.rule].states[state]
        found: list[tuple[int, Call]] = []
        if arrows.ends:
            call.is_empty = call.is_empty or called.get(call.rule) is call
            found += call.returns
        for rule, target in arrows.rules:
            if not rules[rule].empty and rules[rule].first.isdisjoint(types):
                continue
            if rule not in called:
                called[rule] = Call(rule)
                found.append((0, called[rule]))
            called[rule].returns.append((target, call))
            if called[rule].is_empty:
                found.append((target, call))
        for item in found:
            if item not in seen:
                seen.add(item)
                items.append(item)
        for taken, target in arrows.tokens:
            if not taken.isdisjoint(types):
                after.add((target, call))
    return list(after)


def _numbers(text: str) -> frozenset[int]:
    found: set[int] = set()
    for run in text.split():
        low, _, high = run.partition(":")
        found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)
