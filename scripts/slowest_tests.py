"""Print the slowest tests of several pytest runs, then how many tests there were.

Usage: slowest_tests.py COUNT RESULTS.xml... (files of `pytest --junitxml`)
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

_OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def main(count: int, files: list[Path]) -> None:
    """Print both; a count of 0 leaves the list of tests out."""
    tests = [test for file in files for test in ET.parse(file).iter("testcase")]
    if count:
        print(f"\n== slowest {count} tests")
        for test in sorted(tests, key=_seconds, reverse=True)[:count]:
            print(f"{_seconds(test):7.1f} s  {test.get('classname')}::{test.get('name')}")
        return
    outcomes = dict.fromkeys(["passed", "failed", "skipped"], 0)
    for test in tests:
        outcomes[next((_OUTCOMES[part.tag] for part in test if part.tag in _OUTCOMES), "passed")] += 1
    print("\n" + ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items()))


def _seconds(test: ET.Element) -> float:
    return float(test.get("time", 0))


if __name__ == "__main__":
    main(int(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
