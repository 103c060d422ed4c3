"""The files of a new project.

Each is written as the guide recommends, and meant to be changed. `NAME` stands for the project's name.

Called by `cli.projects.init`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import drivetrain

_APPLICATION: Final = '''"""Counts orders and adds up their amounts, by item and hour."""

from drivetrain import Application, agg, sinks, sources, windows

app = Application("NAME")

orders = app.read(
    sources.json(
        app.setting("input", "orders", doc="a directory of files with one JSON object per line"),
        schema="at timestamp, item string, amount double",
        event_time="at",
        max_disorder="10 min",
        on_bad_record="dead_letter",
    ),
    name="orders",
)
paid = orders.filter("amount > 0", name="paid")
hourly = (
    paid.group_by("item")
    .window(windows.tumbling("1 h"))
    .aggregate(step="hourly", orders=agg.count(), total=agg.sum("amount"))
)
hourly.sink(sinks.csv(app.setting("output", "hourly", doc="where results are written")), name="results")
'''

_TEST: Final = '''"""Tests of the application: messages in, the clock advanced, results out."""

from NAME import app


def test_an_hour_is_reported_when_the_clock_has_passed_it(start_run):
    run = start_run(app)
    run.send(
        "orders",
        [
            {"at": "2026-01-01T09:05", "item": "tea", "amount": 4.0},
            {"at": "2026-01-01T09:40", "item": "tea", "amount": 5.0},
            {"at": "2026-01-01T09:45", "item": "tea", "amount": -5.0},
        ],
    )
    assert run.emitted("hourly") == []
    run.advance_clock("2026-01-01T10:00")
    assert run.emitted("hourly", "item", "orders", "total") == [{"item": "tea", "orders": 2, "total": 9.0}]
    assert run.late("hourly") == []
'''

_CONFTEST: Final = '''"""What pytest needs for tests of applications."""

pytest_plugins = ["drivetrain.testing.pytest_plugin"]
'''

_CONFIG: Final = """# Configuration of all commands in this directory; `drivetrain config` lists all keys.

[state]
dir = ".drivetrain"      # checkpoints and channels: without them, an application starts over

[run]
max-batch-bytes = "64 MiB"
"""

_CI: Final = """name: test

on: [push, pull_request]

jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
          cache: pip
      - uses: actions/setup-java@v4
        with:
          distribution: temurin
          java-version: "17"
      - run: pip install -r requirements.txt
      - run: drivetrain plan NAME.py
      - run: pytest
"""

_REQUIREMENTS: Final = """drivetrain>=VERSION
pytest>=8.3
"""

_IGNORED: Final = """.drivetrain/
.venv/
__pycache__/
hourly/
"""

_ORDERS: Final = """{"at": "2026-01-01T09:05:00Z", "item": "tea", "amount": 4.0}
{"at": "2026-01-01T09:40:00Z", "item": "coffee", "amount": 5.5}
{"at": "2026-01-01T10:10:00Z", "item": "cake", "amount": 6.0}
{"at": "2026-01-01T10:05:00Z", "item": "tea", "amount": 4.0}
{"at": "2026-01-01T12:30:00Z", "item": "coffee", "amount": 5.5}
"""

_README: Final = """# NAME

Counts orders and adds up their amounts, by item and hour.

    pip install -r requirements.txt
    drivetrain run NAME.py                       # reads orders/, writes hourly/
    drivetrain run NAME.py --set input=elsewhere # another input, and so another state
    drivetrain run NAME.py --watch               # runs again after each change of a file
    drivetrain plan NAME.py --picture NAME.svg
    pytest
"""


def project_files(name: str) -> Mapping[str, str]:
    """The texts of a project's files by their paths."""
    files = {
        f"{name}.py": _APPLICATION,
        f"test_{name}.py": _TEST,
        "conftest.py": _CONFTEST,
        "drivetrain.toml": _CONFIG,
        "requirements.txt": _REQUIREMENTS.replace("VERSION", drivetrain.__version__),
        "README.md": _README,
        ".gitignore": _IGNORED,
        ".github/workflows/test.yml": _CI,
        "orders/orders.jsonl": _ORDERS,
    }
    return {path: text.replace("NAME", name) for path, text in files.items()}
