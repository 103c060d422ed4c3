"""Find the integration and browser tests that reach no line or branch which other tests do not reach.

Usage:
  tests_by_coverage.py measure DIRECTORY [PYTEST ARGUMENT...]   run tests, one context per test: an hour
  tests_by_coverage.py report DIRECTORY                         list them, the most expensive first

`measure` runs the unit tests and simulations and then the tests of integration and browser, those of the
nightly run left out, as `make test` does. Processes that tests start count for the test that started them;
one that is killed writes nothing. `report` goes through the tests from the slowest to the fastest, and leaves
out each whose lines and branches the remaining tests reach: what it prints is a candidate for the nightly
run, if something else judges the behaviour.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAGES = {"quick": ["tests/simulation", "tests/unit"], "whole": ["tests/integration", "tests/browser"]}
SETTINGS = """[run]
source_pkgs = drivetrain
branch = true
parallel = true
sigterm = true
data_file = ${COVERAGE_STAGE}/data
context = ${PYTEST_CURRENT_TEST-none}
"""
PLUGIN = """import coverage
import pytest

@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    coverage.Coverage.current().switch_context(item.nodeid)
    yield
"""
Arc = tuple[str, int, int]


def measure(directory: Path, arguments: list[str]) -> None:
    """Run both stages; what they leave is in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "settings").write_text(SETTINGS)
    (directory / "one_context_per_test.py").write_text(PLUGIN)
    for stage, folders in STAGES.items():
        (directory / stage).mkdir(exist_ok=True)
        environment = os.environ | {
            "COVERAGE_PROCESS_START": str(directory / "settings"),
            "COVERAGE_STAGE": str(directory / stage),
            "PYTHONPATH": str(directory),
        }
        line = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "2",
            "--no-loadscope-reorder",
            "-p",
            "one_context_per_test",
        ]
        line += ["--timeout", "1800", "--junitxml", str(directory / f"{stage}.xml"), *folders, *arguments]
        subprocess.run(line, cwd=ROOT, env=environment, check=False)


def report(directory: Path) -> None:
    """Print the tests that add nothing, and what all of them cost."""
    reached = arcs_by_test(directory / "whole")
    base = set().union(*arcs_by_test(directory / "quick").values(), reached.pop("none", set()))
    seconds = {name: cost for name, cost in times(directory / "whole.xml").items() if name in reached}
    needed = {name: arcs - base for name, arcs in reached.items()}
    count = Counter(arc for name in seconds for arc in needed[name])
    spare = []
    for name in sorted(seconds, key=lambda name: -seconds[name]):
        if all(count[arc] > 1 for arc in needed[name]):
            spare.append(name)
            count.subtract(needed[name])
    for name in spare:
        print(f"{seconds[name]:8.1f} s  {name}")
    total = sum(seconds.values())
    print(
        f"{len(spare)} of {len(seconds)} tests, {sum(map(seconds.__getitem__, spare)):.0f} of {total:.0f} s"
    )


def arcs_by_test(directory: Path) -> dict[str, set[Arc]]:
    """The lines and branches that each test has reached; those of no test are under "none"."""
    found: dict[str, set[Arc]] = defaultdict(set)
    for file in directory.glob("data*"):
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as data:
            for path, context, start, end in _arcs(data):
                found[_test_of(context)].add((path, start, end))
    return found


def _arcs(data: sqlite3.Connection) -> list[tuple[str, str, int, int]]:
    """File, context, and two lines of each arc; none when the process was killed while it wrote."""
    try:
        return data.execute(
            "select path, context, fromno, tono from arc join file on file.id = file_id"
            " join context on context.id = context_id"
        ).fetchall()
    except sqlite3.DatabaseError:
        return []


def _test_of(context: str) -> str:
    """The test of a context: "static|dynamic", in a child process only the static part, with the phase."""
    parts = [part for part in context.split("|") if part not in ("", "none")]
    return re.sub(r" \((setup|call|teardown)\)$", "", parts[-1]) if parts else "none"


def times(file: Path) -> dict[str, float]:
    """How long each test took, by its name as pytest says it."""
    cases = ET.parse(file).iter("testcase")
    return {
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}": float(case.get("time", 0))
        for case in cases
    }


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", place, *rest]:
            measure(Path(place).absolute(), rest)
        case ["report", place]:
            report(Path(place))
        case _:
            sys.exit(__doc__)
