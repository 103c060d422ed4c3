"""SQL over a stream as operators: `stream.sql("SELECT … FROM this …")`.

A statement without GROUP BY is one processor. With GROUP BY, it becomes the operators that a user would
write: a filter, an aggregation in a window, a filter for HAVING, and a projection. So its state, late
messages and results are the same as with `group_by`.

Called by `stream`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from drivetrain.api import windows
from drivetrain.api.expressions.columns import Column, col, expr, require_free_names
from drivetrain.api.expressions.sql.statement import (
    Statement,
    aggregate_calls,
    end_of_call,
    is_distinct,
    pieces,
    refused,
    source,
    statement_of,
)
from drivetrain.api.expressions.sql.tokens import Token, tokens_of
from drivetrain.api.graphs.graph_builder import GraphBuilder
from drivetrain.api.location import caller
from drivetrain.api.operations import Aggregate, Filter, Select, SelectSql
from drivetrain.api.operators.declared_time import declares_time
from drivetrain.api.states.monoids import Aggregation
from drivetrain.api.windows import Window
from drivetrain.errors import GraphError

TIME: Final = "`__ts`"
"""The column with the time of a message, in SQL text."""
_BOUNDS: Final = {"start": "window_start", "end": "window_end"}
_WINDOWS: Final = ("window", "session_window")
_BY_MESSAGE = "GROUP BY window(timestamp(), '1 hour') or other keys; without them an aggregate never ends"


@dataclass
class _Grouping:
    """A statement with GROUP BY, as keys, a window, aggregations and columns computed from their results."""

    keys: dict[str, str] = field(default_factory=dict)
    """The names of keys, and their expressions."""
    window: Window = field(default_factory=windows.everything)
    window_call: tuple[str, ...] = ()
    """The call of the window function in GROUP BY, in the form of `_same`."""
    aggregations: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    """The columns of the result, as expressions over keys, bounds of the window and aggregations."""
    having: str = ""
    names: frozenset[str] = frozenset()
    """The names that the statement gives to columns."""


def sql(app: GraphBuilder, id: str, text: str, name: str | None) -> Any:
    """The stream of a statement over processor `id`; raises `GraphError` for unsupported SQL."""
    if not isinstance(text, str):
        raise GraphError("SQL is text", where=f"sql ({caller()})", got=repr(text))
    statement = statement_of(text)
    columns = tokens_of(statement.columns)
    if not statement.keys:
        calls = aggregate_calls(columns)
        if calls or statement.having:
            got = source(statement.columns, columns[slice(*calls[0])]) if calls else "HAVING"
            raise refused("aggregates without GROUP BY", got, _BY_MESSAGE)
        clauses = _clauses(statement.lateral, statement.where)
        return app._add("sql", SelectSql(_timed(statement.columns), statement.alias, clauses), (id,), name)
    return _grouped(app, id, statement, name)


def _grouped(app: GraphBuilder, id: str, statement: Statement, name: str | None) -> Any:
    grouping = _grouping(app, id, statement)
    base = name or "sql"
    if statement.lateral:
        clauses = _clauses(statement.lateral, statement.where)
        id = app._add(f"{base}-rows", SelectSql("*", statement.alias, clauses), (id,), None).id
    elif statement.where:
        id = app._add(f"{base}-where", Filter(expr(_timed(statement.where))), (id,), None).id
    operation = Aggregate(
        tuple((key, _column(key, text)) for key, text in grouping.keys.items()),
        grouping.window,
        tuple((key, Aggregation(expr(_timed(text)), text)) for key, text in grouping.aggregations.items()),
    )
    made = app._add("sql", operation, (id,), name)
    if grouping.having:
        made = app._add(f"{base}-having", Filter(expr(grouping.having)), (made.id,), None)
    bounds = [] if grouping.window.kind == "global" else list(_BOUNDS.values())
    natural = [*grouping.keys, *bounds, *grouping.aggregations]
    if list(grouping.columns.items()) == [(column, column) for column in natural]:
        return made
    columns = tuple((column, _column(column, text)) for column, text in grouping.columns.items())
    return app._add(f"{base}-select", Select(columns), (made.id,), None)


def _grouping(app: GraphBuilder, id: str, statement: Statement) -> _Grouping:
    items = [_named(text) for text in pieces(statement.columns)]
    grouping = _Grouping(names=frozenset(alias for alias, _ in items))
    keys: dict[tuple[str, ...], str] = {}
    for text in pieces(statement.keys):
        tokens = tokens_of(text)
        _require_key(text, tokens, items)
        if tokens[0].text.lower() in _WINDOWS and tokens[1:2] and tokens[1].text == "(":
            if grouping.window.kind != "global":
                raise refused("two windows", text, "two statements, one after the other")
            grouping.window, grouping.window_call = _window(app, id, text, tokens), _same(tokens)
            continue
        names = [alias for alias, item in items if alias and _same(tokens_of(item)) == _same(tokens)]
        own = tokens[-1].text.strip("`") if all(t.text == "." or t.is_operand for t in tokens) else ""
        key = (names or [own or f"key_{len(keys) + 1}"])[0]
        keys[_same(tokens)] = key
        grouping.keys[key] = _timed(text)
    for alias, item in items:
        _add_item(grouping, keys, alias, item)
    if statement.having:
        grouping.having = _over_results(grouping, keys, statement.having, "having")
    if not grouping.aggregations:
        raise refused("GROUP BY without an aggregate", statement.columns, "deduplicate, or count(*) AS n")
    _require_different(grouping, [alias for alias, _ in items])
    return grouping


def _add_item(grouping: _Grouping, keys: dict[tuple[str, ...], str], alias: str, text: str) -> None:
    """A column of the result: a key, a bound of the window, an aggregate, or an expression over these."""
    tokens = tokens_of(text)
    calls = aggregate_calls(tokens)
    if is_distinct(tokens):
        raise refused("DISTINCT in an aggregate", text, 'agg.distinct_count("column") of group_by')
    if text == "*" or text.endswith(".*"):
        raise refused("* with GROUP BY", text, "the keys and aggregates, each with a name")
    if not alias:
        raise refused("a column without a name", text, f"{text} AS name")
    if calls and _same(tokens) not in keys and calls[0] == (0, len(tokens)):
        grouping.aggregations[alias] = text
        grouping.columns[alias] = _quoted(alias)
    else:
        grouping.columns[alias] = _over_results(grouping, keys, text, alias)


def _over_results(grouping: _Grouping, keys: dict[tuple[str, ...], str], text: str, of: str) -> str:
    """An expression over a group's messages, rewritten over results: aggregates and keys become columns."""
    tokens = tokens_of(text)
    if _same(tokens) in keys:
        return _quoted(keys[_same(tokens)])
    made, done = "", 0
    replaced = [
        (start, end, _result_of(grouping, text, tokens[start:end], of))
        for start, end in aggregate_calls(tokens)
    ]
    taken = {n for start, end, _ in replaced for n in range(start, end)}
    for at, token in enumerate(tokens):
        if at in taken or token.text.lower() not in _WINDOWS or (at and tokens[at - 1].text == "."):
            continue
        end = _window_end(grouping, text, tokens, at)
        if [t.text for t in tokens[end : end + 1]] == ["."]:
            bound = tokens[end + 1].text.lower()
            replaced.append((at, end + 2, _BOUNDS.get(bound, bound)))
        else:
            replaced.append((at, end, "named_struct('start', window_start, 'end', window_end)"))
    for start, end, column in sorted(replaced):
        made += text[done : tokens[start].start] + column
        done = tokens[end - 1].start + len(tokens[end - 1].text)
    made += text[done:]
    if _timed(made) != made:
        raise refused("the time of a message beside groups", text, "window.start, or max(timestamp())")
    return made


def _window_end(grouping: _Grouping, text: str, tokens: Sequence[Token], at: int) -> int:
    """The index after the window that begins at a token: only its name, or the same call as in GROUP BY."""
    if [t.text for t in tokens[at + 1 : at + 2]] != ["("]:
        return at + 1
    end = end_of_call(tokens, at)
    if _same(tokens[at:end]) != grouping.window_call:
        name = tokens[at].text
        got = source(text, tokens[at:end])
        raise refused("a window that GROUP BY does not have", got, f"{name}.start and {name}.end of that one")
    return end


def _result_of(grouping: _Grouping, text: str, call: Sequence[Token], of: str) -> str:
    """The column with the result of an aggregate; adds one if no column of the result has it."""
    for name, made in grouping.aggregations.items():
        if _same(tokens_of(made)) == _same(call):
            return _quoted(name)
    taken = {*grouping.names, *grouping.aggregations}
    name = next(made for n in range(1, len(taken) + 2) if (made := f"{of}_{n}") not in taken)
    grouping.aggregations[name] = source(text, call)
    return _quoted(name)


def _named(text: str) -> tuple[str, str]:
    """The name of a column of SELECT, empty if it has none, and its expression."""
    tokens = tokens_of(text)
    last = tokens[-1]
    name = last.text.strip("`")
    if len(tokens) > 2 and tokens[-2].text.upper() == "AS":
        return name, source(text, tokens[:-2])
    is_named = len(tokens) > 1 and (last.is_name or last.text.startswith("`"))
    if is_named and (tokens[-2].is_operand or tokens[-2].text in (")", "]")):
        return name, source(text, tokens[:-1])
    if all(token.text == "." or token.is_operand for token in tokens) and len(tokens) % 2:
        return name, text
    return "", text


def _require_key(text: str, tokens: Sequence[Token], items: Sequence[tuple[str, str]]) -> None:
    words = [token.text.upper() for token in tokens]
    if words[0] in ("ALL", "CUBE", "ROLLUP", "GROUPING") and (len(words) == 1 or words[1] in ("(", "SETS")):
        raise refused(f"GROUP BY {words[0]}", text, "GROUP BY with each key")
    if len(words) == 1 and words[0].isdigit():
        raise refused("a key by its position", text, "the expression itself")
    if _named(text)[1] != text:
        raise refused("a name in GROUP BY", text, f"the name in SELECT: SELECT {_named(text)[1]} AS name")
    if aggregate_calls(tokens):
        raise refused("an aggregate as a key", text, "two statements, one after the other")
    for alias, item in items:
        if len(tokens) == 1 and alias.lower() == words[0].strip("`").lower() and item.lower() != text.lower():
            raise refused(f"{text} is the name of an expression", text, f"the expression: GROUP BY {item}")


def _window(app: GraphBuilder, id: str, text: str, tokens: Sequence[Token]) -> Window:
    """The window of a call of Spark's window functions over the time of the messages."""
    function = tokens[0].text.lower()
    time, *lengths = pieces(source(text, tokens[2:-1]))
    if _timed(time) != TIME and not declares_time(app._nodes, id, time):
        raise refused(
            f"{time} is not known to be the time of the messages", text, f"{function}(timestamp(), ...)"
        )
    values = [re.fullmatch(r"""(['"])(.*)\1""", length) for length in lengths]
    most = 1 if function == "session_window" else 2
    if not values or None in values or len(values) > most:
        expected = "'30 minutes'" if most == 1 else "'1 hour' [, '5 minutes']"
        raise refused("these lengths of a window", text, f"{function}({time}, {expected})")
    texts = [value[2] for value in values if value is not None]
    if function == "session_window":
        return windows.session(texts[0])
    return windows.tumbling(texts[0]) if len(texts) == 1 else windows.sliding(texts[0], texts[1])


def _require_different(grouping: _Grouping, aliases: list[str]) -> None:
    """Raise `GraphError` if two columns of the result, or two results of the window, have one name."""
    require_free_names(aliases)
    names = Counter(aliases)
    clash = [name for name in grouping.aggregations if name in grouping.keys or name in _BOUNDS.values()]
    twice = [name for name, count in names.items() if count > 1] + clash
    if twice:
        raise GraphError(
            f"two columns are called {twice[0]!r}",
            where=f"sql ({caller()})",
            remedy="give one of them another name with AS",
        )


def _clauses(lateral: str, where: str) -> str:
    return _timed(f"{lateral} {f'WHERE {where}' if where else ''}".strip())


def _timed(text: str) -> str:
    """The text, with the time column in place of `timestamp()`."""
    tokens = tokens_of(text)
    words = [token.text.lower() for token in tokens]
    made, done = "", 0
    for at in range(len(tokens) - 2):
        if words[at : at + 3] == ["timestamp", "(", ")"]:
            made += text[done : tokens[at].start] + TIME
            done = tokens[at + 2].start + 1
    return made + text[done:]


def _same(tokens: Sequence[Token]) -> tuple[str, ...]:
    """The tokens in a form that ignores spaces and the case of names, to compare expressions."""
    return tuple(t.text if t.text[0] in "'\"" else t.text.lower().strip("`") for t in tokens)


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else "`" + name.replace("`", "``") + "`"


def _column(name: str, text: str) -> Column:
    return col(name) if text == name else expr(text)
