"""Shows figures: as lines in a terminal, and as tables in a Markdown page between markers.

A page has one pair of markers per benchmark, and what lies between them is replaced:

    <!-- figures: wordcount -->
    <!-- end -->
"""

from __future__ import annotations

import math
import re
from typing import Any


def table(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The heading and the rows of a result, ours first, then the peers as they are listed."""
    columns = [tuple(c) for c in result["columns"]]
    shown = [c for c in columns if any(c[0] in figures for figures in result["median"].values())]
    cpu_over = result["cpu_over"]
    cpu_heading = ["CPU per million, ours / it"] if cpu_over else []
    heading = ["", result["unit"], "ours / it", "goal", *(name for _, name in shown), *cpu_heading, "runs"]
    rows = []
    for name, figures in result["median"].items():
        ratio, goal = result["ours_over"].get(name), result["goals"].get(name)
        rows.append(
            [
                name,
                number(figures[result["measure"]]),
                "" if ratio is None else f"{ratio:.2f}",
                "" if goal is None else f"≥ {goal:g}",
                *(number(figures[key]) if key in figures else "" for key, _ in shown),
                *([f"{cpu_over[name]:.2f}" if name in cpu_over else ""] if cpu_over else []),
                str(result["rounds"][name]),
            ]
        )
    return heading, rows


def as_text(result: dict[str, Any]) -> str:
    """A result as lines for a terminal."""
    if "text" in result or "markdown" in result:
        return str(result.get("text", result.get("markdown")))
    heading, rows = table(result)
    widths = [max(len(row[i]) for row in [heading, *rows]) for i in range(len(heading))]
    lines = [f"{result['title']}{' (quick: too little data for a figure)' if result['quick'] else ''}"]
    for row in [heading, *rows]:
        cells = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        lines.append("  " + "  ".join(cells).rstrip())
    lines += [f"  {name} left out: {reason.splitlines()[0]}" for name, reason in result["skipped"].items()]
    return "\n".join(lines)


def as_main_table(results: dict[str, dict[str, Any]]) -> str:
    """Results of several benchmarks as one table for a terminal, with machine and versions below it."""
    rows = [["", "", "", "ours / it", "CPU s", "ours / it"]]
    for result in results.values():
        own_cpu_s = next(iter(result["median"].values()), {}).get("cpu_s")
        for name, figures in result["median"].items():
            ratio, cpu_s = result["ours_over"].get(name), figures.get("cpu_s")
            is_first = name == next(iter(result["median"]))
            rows.append(
                [
                    result["job"] if is_first else "",
                    name,
                    f"{number(figures[result['measure']])} {result['unit']}",
                    "" if ratio is None else f"{ratio:.2f}",
                    "" if cpu_s is None else number(cpu_s),
                    "" if is_first or cpu_s is None or own_cpu_s is None else f"{own_cpu_s / cpu_s:.2f}",
                ]
            )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        texts = [row[i].ljust(widths[i]) for i in (0, 1)]
        lines.append("  ".join([*texts, *(row[i].rjust(widths[i]) for i in range(2, len(row)))]).rstrip())
    lines += [
        f"{job}: {name} left out: {reason.splitlines()[0]}"
        for job, result in results.items()
        for name, reason in result["skipped"].items()
    ]
    for machine in [result["machine"] for result in results.values()][:1]:
        lines.append(
            f"{machine['cores']} cores, {machine['memory_gib']} GiB; Drivetrain {machine['drivetrain']}, "
            f"Spark {machine['spark']}, Python {machine['python']}; one round each"
        )
    return "\n".join(lines)


def as_markdown(result: dict[str, Any]) -> str:
    """A result as a Markdown table; what already is Markdown as it is, and text as a block of text."""
    if "markdown" in result:
        return str(result["markdown"])
    if "text" in result:
        return f"```text\n{str(result['text']).strip()}\n```"
    heading, rows = table(result)
    lines = [
        "| " + " | ".join(heading) + " |",
        "|---|" + "---:|" * (len(heading) - 1),
        *(
            "| " + " | ".join([f"**{row[0]}**" if n == 0 else row[0], *row[1:]]) + " |"
            for n, row in enumerate(rows)
        ),
    ]
    machine = result["machine"]
    what, _, per = result["unit"].partition("/")
    counted = f"{result['units']:,} {what}; " if per else ""
    lines.append("")
    lines.append(
        f"{counted}{machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, Spark {machine['spark']}, Python {machine['python']}."
        + (" A quick run: too little data for a figure." if result["quick"] else "")
    )
    lines += [f"Left out: {name}, {reason.splitlines()[0]}" for name, reason in result["skipped"].items()]
    return "\n".join(lines)


def write_into(page: str, results: dict[str, dict[str, Any]]) -> str:
    """The page with the figures of `results` (by benchmark) between their markers; the rest as it was."""

    def replaced(found: re.Match[str]) -> str:
        result = results.get(found["name"])
        if result is None:
            return found[0]
        return f"<!-- figures: {found['name']} -->\n{as_markdown(result)}\n<!-- end -->"

    return re.sub(r"<!-- figures: (?P<name>\w+) -->\n.*?<!-- end -->", replaced, page, flags=re.DOTALL)


def number(value: float) -> str:
    """Three digits at least, thousands apart."""
    if 0 < abs(value) < 1:
        return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"
