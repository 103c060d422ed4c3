"""A `SELECT` over one stream, divided into its clauses.

Problem: `stream.sql("SELECT …")` must become operators. Only some statements have a meaning for a stream,
and the others must be refused while the application is built, with the operator that does it instead.

Design: Spark's own grammar decides whether the text is a query (`api.expressions.sql.check`). Clauses are
then found by their keywords outside of brackets; each stays text, which Spark reads. What is not a keyword
of a clause is not interpreted here.

Invariants:

1. The clauses, in order, are the text of the statement from SELECT to its end, without comments around them.
2. No clause contains a query of its own.

Called by `api.operators.statements`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from drivetrain.api.expressions.sql.check import require_query
from drivetrain.api.expressions.sql.tokens import Token, tokens_of
from drivetrain.api.location import caller
from drivetrain.errors import GraphError

AGGREGATES: Final = frozenset(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
    bitmap_or_agg bool_and bool_or collect_list collect_set collect_union corr count count_if
    count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id histogram_numeric
    hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max
    max_by mean measure median min min_by mode percentile percentile_approx percentile_cont
    percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
    regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg
    theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double
    tuple_union_agg_integer var_pop var_samp variance
    """.split()  # noqa: SIM905 - a list of words is easier to read
)
"""Spark's aggregate functions."""
_QUANTIFIERS: Final = frozenset({"any", "some"})
"""Aggregates whose names are also a part of `x LIKE ANY (...)`."""
_CLAUSES: Final = ("SELECT", "FROM", "LATERAL", "WHERE", "GROUP", "HAVING")
_SORTED: Final = "top(n, by=...) of a window: a stream has no end at which it could be sorted"
_SEEN: Final = "a PersistentTask, which remembers what it has seen"
_INSTEAD: Final = {
    "JOIN": "join(other, on=..., within=...) of the stream",
    "ORDER": _SORTED,
    "SORT": _SORTED,
    "LIMIT": "top(n, by=...) of a window; log(n) and preview(rows=n) show some messages",
    "OFFSET": "filter(...): messages have no numbers",
    "UNION": "union(other) of the stream",
    "EXCEPT": _SEEN,
    "MINUS": _SEEN,
    "INTERSECT": "join(other, on=..., within=...) of the stream",
    "DISTRIBUTE": "a partitioner of process(...)",
    "CLUSTER": "a partitioner of process(...)",
    "OVER": "GROUP BY window(...), or deduplicate and top of the stream",
    "WINDOW": "GROUP BY window(...)",
    "TABLESAMPLE": "sample(fraction) of the stream",
    "PIVOT": "conditions in aggregates, as in sum(CASE WHEN kind = 'a' THEN n END) AS a",
    "UNPIVOT": "LATERAL VIEW stack(...)",
    "|>": "SELECT … FROM this WHERE … GROUP BY …",
}
"""Parts of SQL that a stream does not support, and what to use instead."""


@dataclass(frozen=True)
class Statement:
    """The clauses of a `SELECT … FROM this`; those that are absent are empty.

    `alias` is a name for `this`, `lateral` all LATERAL VIEWs, `keys` what follows GROUP BY.
    """

    columns: str
    alias: str
    lateral: str
    where: str
    keys: str
    having: str


def statement_of(text: str) -> Statement:
    """The clauses of a statement; raises `GraphError` unless it is a `SELECT … FROM this` over a stream.

    >>> statement_of("SELECT upper(item) AS item FROM this WHERE price > 5").where
    'price > 5'
    """
    if not text.strip():
        raise refused("it is empty", repr(text), "SELECT … FROM this")
    require_query(text)
    tokens = tokens_of(text)
    _require_simple(tokens)
    starts = _clause_starts(tokens)
    parts: dict[str, list[Token]] = {}
    for word, start in starts.items():
        end = min((other for other in starts.values() if other > start), default=len(tokens))
        parts[word] = list(tokens[start:end])
    if "FROM" not in parts:
        raise refused("reads from nothing", text, "SELECT … FROM this")
    if len(tokens) > 1 and tokens[1].text.upper() == "DISTINCT":
        raise refused("SELECT DISTINCT", "DISTINCT", 'deduplicate("column", within="1 h") of the stream')
    alias = _alias(parts["FROM"], text)
    keys = parts.get("GROUP", [])
    if keys and keys[1].text.upper() != "BY":
        raise refused("GROUP without BY", source(text, keys), "GROUP BY")
    return Statement(
        columns=source(text, parts["SELECT"][1:]),
        alias=alias,
        lateral=source(text, parts.get("LATERAL", [])),
        where=source(text, parts.get("WHERE", [])[1:]),
        keys=source(text, keys[2:]),
        having=source(text, parts.get("HAVING", [])[1:]),
    )


def refused(what: str, got: str, instead: str) -> GraphError:
    """The error for a statement that is SQL, but has no meaning for a stream."""
    return GraphError(
        f"SQL over a stream cannot do this: {what}",
        where=f"sql ({caller()})",
        expected="SELECT columns FROM this [LATERAL VIEW …] [WHERE …] [GROUP BY …] [HAVING …]",
        got=got,
        remedy=f"use {instead}",
    )


def source(text: str, tokens: Sequence[Token]) -> str:
    """The part of a text from the first of these tokens to the last."""
    return text[tokens[0].start : tokens[-1].start + len(tokens[-1].text)] if tokens else ""


def pieces(text: str) -> list[str]:
    """The parts of a list in SQL text, which commas outside of brackets divide.

    >>> pieces("item, window(at, '1 hour'), price + 1")
    ['item', "window(at, '1 hour')", 'price + 1']
    """
    found: list[list[Token]] = [[]]
    for token, depth in with_depth(tokens_of(text)):
        if token.text == "," and depth == 0:
            found.append([])
        else:
            found[-1].append(token)
    return [source(text, part) for part in found]


def with_depth(tokens: Sequence[Token]) -> list[tuple[Token, int]]:
    """The tokens, each with the number of brackets that are open around it."""
    depth, found = 0, []
    for token in tokens:
        depth -= token.text in (")", "]")
        found.append((token, depth))
        depth += token.text in ("(", "[")
    return found


def is_distinct(tokens: Sequence[Token]) -> bool:
    """Whether there is a DISTINCT, apart from that of IS DISTINCT FROM."""
    words = [token.text.upper() for token in tokens]
    return any(word == "DISTINCT" and words[at + 1 : at + 2] != ["FROM"] for at, word in enumerate(words))


def aggregate_calls(tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """The first token and the end of each call of an aggregate function that is not inside another one."""
    found: list[tuple[int, int]] = []
    levels = with_depth(tokens)
    for at, (token, depth) in enumerate(levels[:-1]):
        is_call = token.text.lower() in AGGREGATES and tokens[at + 1].text == "("
        before = tokens[at - 1].text.upper() if at else ""
        is_quantifier = before.endswith("LIKE") and token.text.lower() in _QUANTIFIERS
        if is_call and before != "." and not is_quantifier and (not found or at >= found[-1][1]):
            end = _closed(levels, at + 1, depth)
            if [t.text.upper() for t in tokens[end : end + 2]] == ["FILTER", "("]:
                end = _closed(levels, end + 1, depth)
            found.append((at, end))
    return found


def end_of_call(tokens: Sequence[Token], at: int) -> int:
    """The index after the call of the function at `at`."""
    levels = with_depth(tokens)
    return _closed(levels, at + 1, levels[at][1])


def _closed(levels: Sequence[tuple[Token, int]], opened: int, depth: int) -> int:
    """The index after the bracket that closes the one at `opened`."""
    return next(n for n in range(opened + 1, len(levels)) if levels[n][1] == depth) + 1


def _require_simple(tokens: Sequence[Token]) -> None:
    """Raise `GraphError` for operations that need a whole table."""
    if not tokens or tokens[0].text.upper() != "SELECT":
        raise refused(
            "it does not begin with SELECT", tokens[0].text if tokens else "nothing", "SELECT … FROM this"
        )
    for at, (token, depth) in enumerate(with_depth(tokens)):
        word = token.text.upper()
        if depth < 0:
            raise refused("a bracket closes what is not open", token.text, "one query")
        if at and word == "SELECT":
            raise refused("a query within the query", "SELECT", "join(table, on=...) of the stream")
        if depth == 0 and word in _INSTEAD and not _is_name(tokens, at):
            raise refused(word, token.text, _INSTEAD[word])


def _is_name(tokens: Sequence[Token], at: int) -> bool:
    """Whether a keyword of a clause is a name at this place, or has another meaning there."""
    word = tokens[at].text.upper()
    before = tokens[at - 1].text if at else ""
    after = tokens[at + 1].text.upper() if at + 1 < len(tokens) else ""
    if before in (".", ",") or before.upper() in ("AS", "SELECT", "BY") or after == ".":
        return True
    if word == "EXCEPT":  # of a star
        return before == "*"
    return word in ("WINDOW", "OFFSET", "LIMIT", "MINUS") and after in (",", "FROM", "(", "")


def _clause_starts(tokens: Sequence[Token]) -> dict[str, int]:
    """Where each clause begins, in the order of clauses."""
    found: dict[str, int] = {}
    for at, (token, depth) in enumerate(with_depth(tokens)):
        word = token.text.upper()
        if depth or word not in _CLAUSES or word in found:
            continue
        before = [t.text.upper() for t in tokens[max(at - 2, 0) : at]]
        is_compared = word == "FROM" and before in (["IS", "DISTINCT"], ["NOT", "DISTINCT"])
        if before[-1:] not in (["."], ["AS"]) and not is_compared:
            found[word] = at
    return found


def _alias(tokens: Sequence[Token], text: str) -> str:
    """The name that FROM gives to `this`; raises `GraphError` if it reads anything else."""
    names = [token.text for token in tokens[1:]]
    if not names or names[0].strip("`").lower() != "this":
        raise refused("it reads another table", source(text, tokens), "FROM this, which is the stream")
    rest = [name for name in names[1:] if name.upper() != "AS"]
    if len(rest) > 1 or rest in (["."], [","]):
        raise refused("it reads more than this", source(text, tokens), _INSTEAD["JOIN"])
    return rest[0] if rest else "this"
