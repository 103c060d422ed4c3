"""Variables of tests, benchmarks and scripts are none that a command refuses as an unknown key."""

from __future__ import annotations

import re
from pathlib import Path

from source_tree import ROOT

from drivetrain.config import Config
from drivetrain.config.key import ENVIRONMENT_PREFIX
from drivetrain.errors import ConfigError

INVENTED = "DRIVETRAIN_STATE_DIRR"
"""The misspelt one of the configuration's own tests."""


def is_refused(variable: str) -> bool:
    try:
        Config.load(None, {variable: "x"}, {})
    except ConfigError as error:
        return "no configuration key has this" in str(error)
    return False


def files() -> list[Path]:
    found = [ROOT / "Makefile", *(ROOT / "scripts").glob("*")]
    for folder in ("tests", "benchmarks", "examples"):
        found += (ROOT / folder).rglob("*.py")
    return [file for file in found if file.is_file() and file.suffix in {"", ".py", ".sh"}]


def test_no_variable_would_be_refused() -> None:
    named = {
        name: file.relative_to(ROOT)
        for file in files()
        for name in re.findall(rf"\b{ENVIRONMENT_PREFIX}[A-Z_]+\b", file.read_text())
    }
    assert len(named) > 5
    assert is_refused(INVENTED)
    assert {name: file for name, file in named.items() if is_refused(name)}.keys() == {INVENTED}
