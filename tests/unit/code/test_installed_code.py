"""Installed packages are told from a user's code wherever they were installed, and however one gets there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest

from drivetrain.code import installed_code

PRINTED = """import helper
from drivetrain.code.installed_code import is_installed
print(is_installed(helper.__file__))
"""


@pytest.mark.parametrize(
    "file", [os.__file__, pyarrow.__file__, installed_code.__file__, "<frozen importlib._bootstrap>"]
)
def test_pythons_own_modules_packages_and_drivetrain_are_installed(file: str) -> None:
    assert installed_code.is_installed(file)


def test_a_file_beside_an_installed_package_with_a_longer_name_is_the_users() -> None:
    beside = Path(installed_code.__file__).parents[1]
    if "site-packages" in beside.parts:
        pytest.skip("Drivetrain is installed as a package here, and so is what lies beside it")
    assert not installed_code.is_installed(f"{beside}_jobs/shop.py")


def test_a_module_of_the_folder_where_an_application_lies_is_the_users(tmp_path: Path) -> None:
    (tmp_path / "helper.py").touch()
    assert _printed(tmp_path, PYTHONPATH=str(tmp_path)) == "False"


@pytest.mark.parametrize("linked", [False, True])
def test_what_pip_installed_for_one_user_is_installed(tmp_path: Path, linked: bool) -> None:
    where = "import site; print(site.getusersitepackages())"
    packages = Path(_printed(tmp_path, where, PYTHONUSERBASE=str(tmp_path / "base")))
    real = tmp_path / "elsewhere" if linked else packages
    real.mkdir(parents=True)
    (real / "helper.py").touch()
    if linked:
        packages.parent.mkdir(parents=True)
        packages.symlink_to(real)
    answer = _printed(tmp_path, PYTHONUSERBASE=str(tmp_path / "base"), PYTHONPATH=str(packages))
    assert answer == "True"


def test_a_package_that_the_environment_links_to_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "linked").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(installed_code, "_places", lambda: (f"{tmp_path / 'site'}{os.sep}",))
    assert installed_code.is_installed(str(tmp_path / "site" / "linked" / "module.py"))
    assert not installed_code.is_installed(str(tmp_path / "elsewhere" / "module.py"))


def _printed(folder: Path, program: str = PRINTED, **more: str) -> str:
    line = [sys.executable, "-c", program]
    return subprocess.run(
        line, cwd=folder, env=os.environ | more, check=True, capture_output=True, text=True
    ).stdout.strip()
