"""Write down the grammar of Spark's SQL expressions, as the installed PySpark has it: `make lock` runs this.

SQL text in an application is checked while it is built, so the grammar must be there without Java.
PySpark's jar has it: ANTLR keeps a grammar as a network of states, serialized in constants of the parser
and the lexer that it generates. This program reads the constants from the class files and writes one small
automaton for each rule that an expression can reach to `api/expressions/sql/expression_grammar.json`. A
test compares the file with the installed PySpark.

Source: the serialized form of ANTLR 4.10 and later (`org.antlr.v4.runtime.atn.ATNDeserializer`).
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyspark

GRAMMAR = (
    Path(__file__).parents[1]
    / "src"
    / "drivetrain"
    / "api"
    / "expressions"
    / "sql"
    / "expression_grammar.json"
)
CLASSES = "org/apache/spark/sql/catalyst/parser/"
START = "singleExpression"
NAME_RULES = ("nonReserved", "ansiNonReserved", "strictNonReserved")
"""The rules that list the keywords that may also be names."""
NEVER_NAMES = ("AND", "OR", "NOT")
ALWAYS_REFUSED = (("literalType", "identifier"), ("errorCapturingIdentifierExtra", "MINUS"))
"""What the grammar takes in a rule only to be refused later with a better error: literals of unknown types,
and names with a minus in them."""
EOF = -1
END_OF_TEXT = range(EOF, EOF + 1)
BLOCK_STARTS, LOOP_END, RULE_STOP = (3, 4, 5), 12, 7
RANGE, RULE, ATOM, SET, NOT_SET, WILDCARD = WITH_SYMBOLS = 2, 3, 5, 7, 8, 9
Symbol: TypeAlias = tuple[str, int]
"""`("token", type)` or `("rule", index)`."""
Automaton: TypeAlias = list[tuple[bool, dict[Symbol, int]]]
"""Of each state: whether the rule may end here, and where a symbol leads."""


@dataclass
class Network:
    """A grammar as ANTLR keeps it: states with edges (kind, argument, target), and where rules start."""

    edges: dict[int, list[tuple[int, Any, int]]] = field(default_factory=lambda: defaultdict(list))
    stops: set[int] = field(default_factory=set)
    starts: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


def class_constants(data: bytes) -> dict[str, Any]:
    """The constants of a class file's static fields, by name."""
    pool: dict[int, Any] = {}
    at, n = 10, 1
    (count,) = struct.unpack_from(">H", data, 8)
    while n < count:
        tag = data[at]
        if tag == 1:
            (length,) = struct.unpack_from(">H", data, at + 1)
            pool[n] = data[at + 3 : at + 3 + length]
            at += 3 + length
        else:
            if tag == 3:
                (pool[n],) = struct.unpack_from(">i", data, at + 1)
            elif tag == 8:
                pool[n] = struct.unpack_from(">H", data, at + 1)
            at += {3: 5, 4: 5, 5: 9, 6: 9, 7: 3, 8: 3, 15: 4, 16: 3, 19: 3, 20: 3}.get(tag, 5)
            n += tag in (5, 6)
        n += 1
    (interfaces,) = struct.unpack_from(">H", data, at + 6)
    at += 8 + 2 * interfaces
    (fields,) = struct.unpack_from(">H", data, at)
    at += 2
    found = {}
    for _ in range(fields):
        _, name, _, attributes = struct.unpack_from(">4H", data, at)
        at += 8
        for _ in range(attributes):
            kind, length = struct.unpack_from(">HI", data, at)
            if pool[kind] == b"ConstantValue":
                value = pool[struct.unpack_from(">H", data, at + 6)[0]]
                found[pool[name].decode()] = _java_text(pool[value[0]]) if isinstance(value, tuple) else value
            at += 6 + length
    return found


def _java_text(raw: bytes) -> str:
    """Text in Java's own UTF-8, in which zero has two bytes and surrogates stand alone."""
    return raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")


def serialized(constants: dict[str, Any]) -> Iterator[int]:
    """The numbers of a serialized network; a large one has two characters."""
    names = sorted((n for n in constants if n.startswith("_serializedATN")), key=lambda n: (len(n), n))
    chars = iter([ord(c) for n in names for c in constants[n]])
    for char in chars:
        if char < 0x8000:
            yield char
        else:
            low = next(chars)
            yield -1 if char == low == 0xFFFF else (char & 0x7FFF) << 16 | low


def network(constants: dict[str, Any]) -> Network:
    """The network that a generated parser or lexer carries."""
    take = serialized(constants).__next__
    version, is_lexer, most_tokens = take(), take() == 0, take()
    assert version == 4, f"ANTLR has a new form: {version}"
    net = Network()
    for state in range(take()):
        kind = take()
        if kind:
            _skip(take, 2 if kind in (*BLOCK_STARTS, LOOP_END) else 1)
            if kind == RULE_STOP:
                net.stops.add(state)
    _skip(take, take())  # states that are not greedy
    _skip(take, take())  # states with a precedence
    for _ in range(take()):
        net.starts.append(take())
        if is_lexer:
            net.tokens.append(take())
    _skip(take, take())  # modes of a lexer
    sets = [_interval_set(take) for _ in range(take())]
    every = frozenset(range(1, most_tokens + 1))
    for _ in range(take()):
        source, target, kind, *arguments = (take() for _ in range(6))
        net.edges[source].append((kind, _argument(kind, arguments, sets, every), target))
    return net


def _skip(take: Callable[[], int], count: int) -> None:
    for _ in range(count):
        take()


def _argument(kind: int, given: list[int], sets: list[frozenset[int]], every: frozenset[int]) -> Any:
    """The tokens (of a lexer: characters) of an edge, or the rule that it calls."""
    first, second, with_end = given
    match kind:
        case 2 | 5:  # RANGE, ATOM
            low = EOF if with_end else first
            return range(low, (second if kind == RANGE else low) + 1)
        case 7:  # SET
            return sets[first]
        case 8:  # NOT_SET
            return every - sets[first]
        case 9:  # WILDCARD
            return every
        case 3:  # RULE
            return second
    return None


def _interval_set(take: Callable[[], int]) -> frozenset[int]:
    intervals, found = take(), set()
    if take():
        found.add(EOF)
    for _ in range(intervals):
        low, high = take(), take()
        found.update(range(low, high + 1))
    return frozenset(found)


def fixed_texts(lexer: Network) -> dict[str, int]:
    """Every text of the tokens that have few: keywords, operators, brackets; with the token's type."""
    found: dict[str, int] = {}
    for start, token in zip(lexer.starts, lexer.tokens, strict=True):
        texts = list(_texts(lexer, start, ""))
        if None not in texts:
            for text in texts:
                found.setdefault(str(text), token)
    return found


def _texts(lexer: Network, state: int, before: str) -> Iterator[str | None]:
    """The texts from a state to the end of its rule; None where there are too many to be listed."""
    if state in lexer.stops:
        yield before
        return
    for kind, argument, target in lexer.edges[state]:
        if kind in (RANGE, RULE, SET, NOT_SET, WILDCARD) or len(before) > 40 or argument == END_OF_TEXT:
            yield None
        elif kind == ATOM:
            yield from _texts(lexer, target, before + chr(argument[0]))
        else:
            yield from _texts(lexer, target, before)


def automaton(net: Network, rule: int) -> Automaton:
    """The rule as a deterministic automaton over tokens and other rules."""
    numbers = {_closed(net, {net.starts[rule]}): 0}
    made: Automaton = []
    for states in (todo := list(numbers)):
        arrows = {}
        for symbol, targets in _leads(net, states).items():
            target = _closed(net, targets)
            if target not in numbers:
                numbers[target] = len(numbers)
                todo.append(target)
            arrows[symbol] = numbers[target]
        made.append((not states.isdisjoint(net.stops), arrows))
    return made


def _closed(net: Network, states: set[int]) -> frozenset[int]:
    """The states, and those that are reached from them without a symbol."""
    todo = list(states)
    for state in todo:
        for kind, _, target in net.edges[state]:
            if kind not in WITH_SYMBOLS and target not in states:
                states.add(target)
                todo.append(target)
    return frozenset(states)


def _leads(net: Network, states: frozenset[int]) -> dict[Symbol, set[int]]:
    leads: dict[Symbol, set[int]] = defaultdict(set)
    for state in states:
        for kind, argument, target in net.edges[state]:
            if kind == RULE:
                leads["rule", argument].add(target)
            elif kind in WITH_SYMBOLS:
                for token in argument:
                    leads["token", token].add(target)
    return leads


def first_tokens(rules: dict[int, Automaton]) -> tuple[dict[int, set[int]], set[int]]:
    """The tokens with which each rule can begin, and the rules that can be empty."""
    first: dict[int, set[int]] = {rule: set() for rule in rules}
    empty: set[int] = set()
    before = None
    while before != (before := (sum(map(len, first.values())), len(empty))):
        for rule, states in rules.items():
            todo = [0]
            for state in todo:
                ends, arrows = states[state]
                if ends:
                    empty.add(rule)
                for (kind, value), target in arrows.items():
                    first[rule] |= {value} if kind == "token" else first[value]
                    if kind == "rule" and value in empty and target not in todo:
                        todo.append(target)
    return first, empty


def grammar() -> dict[str, Any]:
    """What the file has: see `drivetrain.api.expressions.sql.grammar`."""
    with zipfile.ZipFile(next((Path(pyspark.__file__).parent / "jars").glob("spark-sql-api_*.jar"))) as jar:
        parser, lexer = (
            class_constants(jar.read(f"{CLASSES}SqlBase{part}.class")) for part in ("Parser", "Lexer")
        )
    numbers = {n: v for n, v in lexer.items() if isinstance(v, int) and n[0].isupper() and "MODE" not in n}
    types = dict(sorted(numbers.items(), key=lambda item: item[1]))
    as_names = {word: max(types.values()) + 1 + n for n, word in enumerate(NEVER_NAMES)}
    rules = reachable(network(parser), parser, types, {types[word]: as_names[word] for word in NEVER_NAMES})
    sets: dict[str, int] = {}
    return {
        "fixed": dict(sorted(fixed_texts(network(lexer)).items(), key=lambda item: item[1])),
        "types": types,
        "as_names": as_names,
        "rules": _written(rules, sets),
        "sets": list(sets),
    }


def reachable(
    net: Network, parser: dict[str, Any], types: dict[str, int], as_names: dict[int, int]
) -> dict[int, Automaton]:
    """The automata of the rules that an expression can reach, by number, beginning with its own."""
    names = {v: n.removeprefix("RULE_") for n, v in parser.items() if n.startswith("RULE_")}
    refused = {
        (rule, symbol)
        for rule, part in ALWAYS_REFUSED
        for symbol in (("token", types.get(part)), ("rule", parser.get(f"RULE_{part}")))
    }
    rules: dict[int, Automaton] = {}
    todo = [parser[f"RULE_{START}"]]
    for rule in todo:
        of_tokens = as_names if names[rule] in NAME_RULES else {}
        rules[rule] = [
            (
                ends,
                {
                    (kind, of_tokens.get(value, value) if kind == "token" else value): target
                    for (kind, value), target in arrows.items()
                    if (names[rule], (kind, value)) not in refused
                },
            )
            for ends, arrows in automaton(net, rule)
        ]
        called = {value for _, arrows in rules[rule] for (kind, value) in arrows if kind == "rule"}
        todo += sorted(called - set(todo))
    return rules


def _written(rules: dict[int, Automaton], sets: dict[str, int]) -> list[Any]:
    """The rules as lists; adds the sets of tokens that they name to `sets`."""
    first, empty = first_tokens(rules)
    numbers = {rule: n for n, rule in enumerate(rules)}

    def set_of(tokens: set[int]) -> int:
        return sets.setdefault(_ranges(tokens), len(sets))

    written = []
    for rule, states in rules.items():
        rows = []
        for ends, arrows in states:
            by_target: dict[int, set[int]] = defaultdict(set)
            for (kind, value), target in arrows.items():
                if kind == "token":
                    by_target[target].add(value)
            calls = [(numbers[value], to) for (kind, value), to in arrows.items() if kind == "rule"]
            rows.append([int(ends), sorted((set_of(t), to) for to, t in by_target.items()), sorted(calls)])
        written.append([set_of(first[rule]), int(rule in empty), rows])
    return written


def _ranges(numbers: set[int]) -> str:
    """Numbers as text: "3 7-9"."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return " ".join(f"{low}" if low == high else f"{low}:{high}" for low, high in runs)


def grammar_file() -> str:
    """The text of the file: a line for each rule, so that a change can be read."""
    made = grammar()
    parts = [f'"{key}": {json.dumps(made[key], separators=(",", ":"))}' for key in made if key != "rules"]
    rules = ",\n".join(json.dumps(rule, separators=(",", ":")) for rule in made["rules"])
    return "{" + ",\n".join(parts) + ',\n"rules": [\n' + rules + "\n]}\n"


if __name__ == "__main__":
    GRAMMAR.write_text(grammar_file())
