"""The lock file pins everything that the package, its extras and its checks need, and names no address."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return {normal(name): version for name, version in (line.split("==") for line in lines if line[0] != "#")}


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {normal(re.split(r"[\[<>=!~; ]", requirement)[0]) for requirement in wanted}
    assert names <= pinned().keys(), "renew it with `make lock`"


def test_lock_holds_names_and_versions_only() -> None:
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", line), line
