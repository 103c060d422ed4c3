"""The grammar of Spark's SQL expressions, and how far a text follows it.

Problem: only Spark's parser knows whether Spark can read an expression, and it needs Java. Any other SQL
parser refuses text that Spark accepts.

Design: `expression_grammar.json` has Spark's own rules, extracted from the pinned PySpark by
`scripts/spark_grammar.py`: a small automaton for each rule, over tokens and other rules. `reach` follows all
paths through them at once, token by token, and builds no tree. All callers of a rule at a token share one
call, so the work grows with the length of the text, not with the number of readings. Spark excludes some
readings by conditions (priorities of operators, settings); they are omitted here, so this module accepts
everything that Spark's parser accepts.

Invariants:

1. `reach` returns None for every text that Spark's parser accepts, except a bare AND, OR or NOT as a name.
2. Otherwise the tokens before the one it returns are the beginning of some expression.

Called by `api.expressions.sql.check` and `api.expressions.sql.tokens`.
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
"""The type of the token after the last one."""
TokenTypes: TypeAlias = tuple[int, ...]
"""The possible types of a token: one, or two for a keyword that may be a name here."""


@dataclass(frozen=True)
class Transitions:
    """The transitions from a state of a rule: by a set of tokens, and by another rule."""

    ends: bool
    tokens: tuple[tuple[frozenset[int], int], ...]
    rules: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Rule:
    """A rule: the tokens that can begin it, whether it can be empty, and its states, from the first on."""

    first: frozenset[int]
    empty: bool
    states: tuple[Transitions, ...]


@dataclass(frozen=True)
class Grammar:
    """The rules, of which the first one is an expression, and the types of tokens by their text."""

    rules: tuple[Rule, ...]
    fixed: dict[str, int]
    types: dict[str, int]
    as_names: dict[str, int]


@dataclass(eq=False)
class Call:
    """A rule that begins at a token: its callers, and whether it matched nothing."""

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
                Transitions(bool(ends), tuple((sets[n], to) for n, to in tokens), tuple(map(tuple, calls)))
                for ends, tokens, calls in states
            ),
        )
        for first, empty, states in read["rules"]
    )
    return Grammar(rules, read["fixed"], read["types"], read["as_names"])


def reach(tokens: Sequence[TokenTypes]) -> int | None:
    """The index of the first token that cannot follow the ones before it; None for an expression."""
    rules = grammar().rules
    items = [(0, Call(0))]
    for at, types in enumerate(tokens):
        items = _step(rules, items, types)
        if not items:
            return at
    return None


def _step(rules: Sequence[Rule], items: list[tuple[int, Call]], types: TokenTypes) -> list[tuple[int, Call]]:
    """The positions of all paths after a token, given those before it."""
    called: dict[int, Call] = {}
    seen, after = set(items), set()
    for state, call in items:  # grows during the loop
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
