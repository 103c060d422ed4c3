"""The files of the dashboard: vendored modules are what they claim, ours follow rules, all are shipped."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from glob import glob
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WEB = ROOT / "src" / "drivetrain" / "console" / "web"
VENDOR = WEB / "vendor"
PACKAGES = json.loads((VENDOR / "vendor.json").read_text())["packages"]
OURS = sorted(file for file in WEB.rglob("*.js") if VENDOR not in file.parents)
MOST_LINES = 400
sys.path.insert(0, str(ROOT / "scripts"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package["name"])
def test_vendored_files_are_those_of_the_package_that_the_index_names(package: dict[str, object]) -> None:
    files = package["files"]
    assert isinstance(files, list)
    for file in files:
        found = hashlib.sha256((VENDOR / file["to"]).read_bytes()).hexdigest()
        assert found == file["sha256"], f"{file['to']}: see scripts/vendor_web.py"
    assert any(file["to"].endswith(".LICENSE") for file in files)
    assert str(package["integrity"]).startswith("sha512-")


def test_no_other_file_is_vendored() -> None:
    known = {file["to"] for package in PACKAGES for file in package["files"]}
    types = {f"{name.removesuffix('.js')}.d.ts" for name in known if name.endswith(".js")}
    assert {file.name for file in VENDOR.iterdir()} <= known | types | {"vendor.json"}


@pytest.mark.parametrize("file", OURS, ids=lambda file: str(file.relative_to(WEB)))
def test_modules_are_checked_short_and_never_parse_text_as_markup(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.startswith("// @ts-check\n")
    assert len(text.splitlines()) <= MOST_LINES
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc"
    )
    assert re.findall(forbidden, text) == []
    assert re.findall(r"https?://", text) == [], "no request leaves the server"


@pytest.mark.parametrize("file", OURS, ids=lambda file: str(file.relative_to(WEB)))
def test_imports_name_files_that_exist(file: Path) -> None:
    names = re.findall(
        r'^(?:import|export)[^"]*?from "([^"]+)"', file.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [name for name in names if not (file.parent / name).is_file()] == []


def test_every_module_is_imported() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in [*OURS, WEB / "index.html"])
    assert [file.name for file in OURS if not re.search(rf'[/"]{re.escape(file.name)}"', text)] == []


def test_the_page_has_no_inline_script_or_style() -> None:
    text = (WEB / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", text) == []
    linked = re.findall(r'(?:href|src)="([^"]+)"', text)
    assert linked
    assert [name for name in linked if not (WEB / name).is_file()] == []


def test_types_of_answers_are_those_of_the_structs() -> None:
    import console_types

    found = (WEB / "lib" / "answers.d.ts").read_text(encoding="utf-8")
    assert found == console_types.written(), "run scripts/console_types.py"


def test_modules_have_no_type_errors() -> None:
    checker = shutil.which("tsc")
    if checker is None:
        pytest.fail("tsc is needed: scripts/setup.sh --browser installs it")
    done = subprocess.run(
        [checker, "-p", str(WEB / "jsconfig.json")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_all_files_are_shipped() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["drivetrain"]
    package = ROOT / "src" / "drivetrain"
    shipped = {
        package / name for pattern in patterns for name in glob(pattern, root_dir=package, recursive=True)
    }
    needed = {
        file
        for file in WEB.rglob("*")
        if file.is_file() and not file.name.endswith((".d.ts", "jsconfig.json"))
    }
    assert needed - shipped == set()
