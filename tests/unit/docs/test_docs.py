"""The README and the guide say what is true: programs plan, commands exist, links lead somewhere."""

from __future__ import annotations

import ast
import re
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from markdown_pages import ROOT, Block, all_pages, anchors, blocks, links, pages, prose

from drivetrain import Application
from drivetrain.cli.inspection.plan import plan_command
from drivetrain.cli.main import app as command_line
from drivetrain.config.catalog import ALL_KEYS
from drivetrain.core.plan.planner import plan

PAGES = pages()
SHELL = ("sh", "bash", "shell", "console")


def chains(page: Path) -> Iterator[list[Block]]:
    """Python blocks that share a namespace: one, and those that continue it."""
    chain: list[Block] = []
    for block in blocks(page):
        kind = block.info.split()
        if kind == ["python"]:
            if chain:
                yield chain
            chain = [block]
        elif kind == ["python", "continued"]:
            assert chain, f"{block} continues nothing"
            chain.append(block)
    if chain:
        yield chain


PROGRAMS = [chain for page in PAGES for chain in chains(page) if any("Application(" in b.code for b in chain)]


def padded(block: Block) -> str:
    """Its code behind as many empty lines as stand before it, so that tracebacks show the page's lines."""
    return "\n" * (block.line - 1) + block.code


@pytest.mark.parametrize("chain", PROGRAMS, ids=lambda chain: str(chain[0]))
def test_programs_can_be_planned(chain: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("page")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, "page", module)
    for block in chain:
        exec(compile(padded(block), str(block.page), "exec", dont_inherit=True), vars(module))
    applications = [value for value in vars(module).values() if isinstance(value, Application)]
    assert applications, f"{chain[0]} makes no application"
    for application in applications:
        assert plan(application.graph()).fragments
    assert not list(tmp_path.iterdir()), "building a graph touches nothing"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_is_python(page: Path) -> None:
    for block in blocks(page):
        if block.info.split()[:1] == ["python"]:
            assert block.info.split()[1:] in ([], ["continued"], ["fragment"]), f"{block}: {block.info}"
            ast.parse(padded(block), str(page))


def test_there_are_programs() -> None:
    assert {chain[0].page.name for chain in PROGRAMS} >= {"README.md", "event-time.md", "operators.md"}


def test_the_plan_in_the_readme_is_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = blocks(ROOT / "README.md")
    program = next(b for b in found if b.info == "python")
    shown = next(b for b in found if b.info == "text" and b.code.startswith("stations: "))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "118")
    Path("stations.py").write_text(program.code)
    plan_command("stations.py")
    printed = {line.rstrip() for line in capsys.readouterr().out.splitlines()}
    assert [line for line in shown.code.splitlines() if line not in printed] == []


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Where each `drivetrain ...` of a page is written, and its words."""
    for block in blocks(page):
        if block.info in SHELL or (block.info == "" and block.code.startswith("drivetrain")):
            for n, line in enumerate(block.code.splitlines()):
                for part in re.split(r"\s+&&\s+|;|\s\|\s", line.removeprefix("$ ").split("  #")[0]):
                    words = shlex.split(part.rstrip(" &\\"), comments=True)
                    if words and words[0].rpartition("/")[2] == "drivetrain":
                        yield f"{page.name}:{block.line + n}", words[1:]
    for written in re.findall(r"`(drivetrain [^`\n]+)`", prose(page)):
        yield f"{page.name}: {written}", re.split(r"\s+", written)[1:]


def test_commands_and_their_options_exist() -> None:
    group: Any = typer.main.get_command(command_line)
    checked = 0
    for page in PAGES:
        for where, words in commands(page):
            if words[0].startswith("-"):
                known, given = group, words
            else:
                assert words[0] in group.commands, f"{where}: there is no command {words[0]!r}"
                known, given = group.commands[words[0]], words[1:]
            options = {name for p in known.params for name in [*p.opts, *p.secondary_opts]} | {"--help", "-h"}
            for word in given:
                if word.startswith("-"):
                    assert word.partition("=")[0] in options, f"{where}: no option {word}"
                    checked += 1
    assert checked > 10


def test_every_command_and_option_is_in_the_guide() -> None:
    group: Any = typer.main.get_command(command_line)
    told = (ROOT / "docs" / "guide" / "commands.md").read_text(encoding="utf-8")
    for name, command in group.commands.items():
        assert f"drivetrain {name}" in told, name
        for parameter in command.params:
            for option in parameter.opts:
                assert not option.startswith("--") or f"{option}" in told, f"{name} {option}"


def test_configuration_keys_exist() -> None:
    topics = {key.split(".")[0] for key in ALL_KEYS}
    for page in PAGES:
        for word in re.findall(r"`([a-z]+\.[a-z.-]+[a-z])`", prose(page)):
            if word.split(".")[0] in topics and "-" in word:
                assert word in ALL_KEYS, f"{page.name}: there is no key {word}"


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in all_pages():
        code = [b.code for b in blocks(page) if b.info in SHELL]
        written = re.findall(r"^make ([a-z]+)", "\n".join(code), re.MULTILINE)
        for target in written + re.findall(r"`make ([a-z]+)", prose(page)):
            assert target in targets, f"{page.name}: there is no target {target}"


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link} leads nowhere"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name}: {link} has no such heading"


def test_exit_codes_are_those_of_the_errors() -> None:
    from drivetrain import errors

    codes = {
        cls.exit_code
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, errors.DrivetrainError)
    }
    table = (ROOT / "docs" / "guide" / "commands.md").read_text(encoding="utf-8").split("## Exit codes")[1]
    told = {int(n) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for n in row.split(",")}
    assert codes <= told


def test_pictures_bring_their_own_background() -> None:
    for picture in (ROOT / "docs" / "images").glob("*.svg"):
        text = picture.read_text(encoding="utf-8")
        assert "prefers-color-scheme: dark" in text, picture.name
        assert "<title" in text, picture.name
        assert "<desc" in text, picture.name


def test_the_tests_that_the_table_of_threats_names_exist() -> None:
    named = re.findall(r"`(tests/[^`]+)`", (ROOT / "docs" / "security.md").read_text(encoding="utf-8"))
    assert len(named) > 10
    for test in named:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), test
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), test


def test_every_decision_is_numbered_listed_and_says_what_was_rejected() -> None:
    folder = ROOT / "docs" / "decisions"
    index = links(folder / "README.md")
    for record in sorted(folder.glob("[0-9]*.md")):
        text = record.read_text(encoding="utf-8")
        assert record.name in index, f"{record.name} is not in the index"
        assert text.startswith(f"# {record.name[:4]}: "), record.name
        for part in ("Context", "Choice", "Rejected"):
            assert f"\n## {part}\n" in text, f"{record.name} has no part {part}"
