"""The units of systemd and the image: what they name exists in the product."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deploy_files import COMMANDS, CONTAINERFILE, DEPLOY, ROOT, UNITS, VARIABLES, options_of, unit, values

from drivetrain.config import Config
from drivetrain.config.catalog import worker
from drivetrain.config.units import duration_ms

NAMES = [path.name for path in UNITS]


@pytest.mark.parametrize("path", UNITS, ids=NAMES)
def test_a_unit_runs_a_command_with_options_that_exist(path: Path) -> None:
    (line,) = unit(path)["ExecStart"]
    program, command, *arguments = shlex.split(line)
    assert program.endswith("/drivetrain")
    assert path.stem == f"drivetrain-{command}"
    assert {each for each in arguments if each.startswith("--")} <= options_of(command)


@pytest.mark.parametrize("path", UNITS, ids=NAMES)
def test_a_unit_sets_variables_that_exist_and_hands_over_the_secret(path: Path) -> None:
    given = dict(each.split("=", 1) for each in unit(path)["Environment"])
    ours = {name: value for name, value in given.items() if name.startswith("DRIVETRAIN_")}
    assert set(ours) <= VARIABLES
    Config.load(None, ours)
    assert unit(path)["LoadCredential"] == ["secret:/etc/drivetrain/secret"]
    assert ours["DRIVETRAIN_CLUSTER_SECRET_FILE"] == "%d/secret"


def test_the_unit_of_a_worker_waits_longer_than_it_drains() -> None:
    settings = unit(DEPLOY / "systemd" / "drivetrain-worker.service")
    given = dict(each.split("=", 1) for each in settings["Environment"])
    name = "DRIVETRAIN_WORKER_DRAIN_TIMEOUT"
    drain_ms = Config.load(None, {name: given[name]})[worker.DRAIN_TIMEOUT]
    stop_ms = duration_ms().read(f"{settings['TimeoutStopSec'][0]} s")
    assert stop_ms >= drain_ms + 15_000
    assert settings["KillMode"] == ["mixed"]  # the worker itself ends its processes


def test_the_file_beside_the_units_is_a_configuration() -> None:
    Config.load(DEPLOY / "systemd" / "drivetrain.toml", {})


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("path", UNITS, ids=NAMES)
def test_systemd_reads_the_unit_without_complaint(path: Path, tmp_path: Path) -> None:
    copied = tmp_path / path.name  # with a program that exists: systemd looks for it
    copied.write_text(path.read_text().replace("/opt/drivetrain/bin/drivetrain", sys.executable))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copied)], capture_output=True, text=True, check=False
    )
    ours = [line for line in verified.stderr.splitlines() if path.stem in line]
    assert ours == []
    assert verified.returncode == 0, verified.stderr


def test_the_image_runs_the_program_as_the_user_of_the_chart_and_copies_what_exists() -> None:
    text = CONTAINERFILE.read_text()
    context = values()["podSecurityContext"]
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}" in text
    assert 'ENTRYPOINT ["tini", "--", "drivetrain"]' in text
    for command in re.findall(r"drivetrain ([a-z]+-[a-z]+)\b", text):
        assert command in COMMANDS
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for source in line.split():
            assert (ROOT / source).exists(), f"{source} is copied into the image and does not exist"
            assert f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()


def test_the_image_opens_the_ports_of_the_chart_and_has_its_extras() -> None:
    text = CONTAINERFILE.read_text()
    ports = values()["ports"]
    assert f"EXPOSE {ports['master']} {ports['health']} {ports['console']}" in text
    wanted = re.search(r'"\.\[([a-z,]+)\]"', text)
    assert wanted is not None
    project = (ROOT / "pyproject.toml").read_text()
    for extra in wanted[1].split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), f"there is no extra {extra}"
