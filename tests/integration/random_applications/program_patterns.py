"""Patterns, and joins with tables, as program text."""

from __future__ import annotations

from .recipe import Match, TableJoin
from .values import plain


def match_lines(i: int, first: str, step: Match) -> list[str]:
    """Write stream `i`: sequences of messages of a key."""
    lines: list[str] = []
    begin = 'patterns.step("first", "pmod(n, 3) = 0"'
    match step.how:
        case "pair":
            lines += ["", "", f"def follows{i}(m, so_far) -> bool:"]
            lines += ["    return m.n is not None and m.n > so_far.first.n", "", ""]
            parts, n = f'{begin}), patterns.step("second", follows{i})', "second.n - first.n"
        case "absent":
            parts, n = f'{begin}), patterns.without("pmod(n, 3) = 1")', "first.n"
        case "repeated":
            parts = f'{begin}, at_least=2), patterns.step("last", "pmod(n, 3) = 1")'
            n = "size(first) * 1000 + last.n"
    options = f'within="{step.within_ms} ms", overlapping={step.overlapping}, name="step{i}"'
    made = f'{first}.select("key", "n").group_by("key").match({parts}, {options})'
    return [*lines, f's{i} = {made}.select("key", n="{n}")']


def table_join_lines(i: int, first: str, step: TableJoin, kind: str) -> list[str]:
    """Write stream `i`: messages with the matching rows of a table."""
    rows = ", ".join(f"({plain(key)}, {m})" for key, m in step.table)
    rows, refresh = f"[{rows}]", ""
    lines: list[str] = []
    if step.refreshed:
        lines = ["", "", f"def rows{i}():", f"    return {rows}", "", ""]
        rows, refresh = f"rows{i}", ', refresh="300 ms"'
    made = f'app.table(sources.items({rows}, schema="key {kind}, m bigint"), name="table{i}"{refresh})'
    joined = f'{first}.join(s{i}_table, on="key", how="{step.how}", name="step{i}")'
    n = '"n"' if step.how in ("semi", "anti") else 'n="n + coalesce(m, 0)"'
    return [*lines, f"s{i}_table = {made}", f's{i} = {joined}.select("key", {n})']
