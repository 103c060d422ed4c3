"""`drivetrain init`: makes a project: an application, its settings, data, a test, configuration, a CI file.

Design: the files are made in a hidden directory beside the new one, which is then renamed: if the command is
stopped, no half of a project is left. Their contents are in `project_files`.

Called by `cli.main`.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from drivetrain.cli.arguments import JsonOption
from drivetrain.cli.json_output import print_json
from drivetrain.cli.projects.project_files import project_files
from drivetrain.errors import OutputError, UserError
from drivetrain.terminal import print_line

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


def init_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of the application, and of the new directory.")
    ],
    into: Annotated[
        Path,
        typer.Option(
            "--into", metavar="DIR", help="Where to create the directory; by default, in the current one."
        ),
    ] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Create a project: an application that runs, a test that passes, configuration and a CI file."""
    made = make_project(name, into)
    if as_json:
        files = [str(file.relative_to(made)) for file in sorted(made.rglob("*")) if file.is_file()]
        print_json({"application": name, "directory": str(made), "files": files}, sys.stdout)
        return
    print_line(
        f"made {made}\n\n"
        f"  cd {made}\n"
        f"  drivetrain run {name}.py             # runs on the messages in orders/\n"
        f"  drivetrain run {name}.py --watch     # again after each change of a file\n"
        "  pip install pytest && pytest         # runs the test"
    )


def make_project(name: str, into: Path) -> Path:
    """Make the directory `name` in `into` with a project in it; returns its path.

    Raises `UserError` for an invalid name, `OutputError` when the directory exists or cannot be made.
    """
    if not _NAME.fullmatch(name) or name in sys.stdlib_module_names:
        raise UserError(
            "not a name for a project",
            where="init",
            expected="lower-case letters, digits and _, starting with a letter, since it becomes a module; "
            "and no module of Python's own",
            got=repr(name),
        )
    place = into / name
    if place.exists():
        raise OutputError(
            "a file or directory of that name exists already",
            where=str(place),
            expected="a directory that does not exist yet",
            remedy="choose another name, or another place with --into",
        )
    aside: str | None = None
    try:
        into.mkdir(parents=True, exist_ok=True)
        aside = tempfile.mkdtemp(prefix=f".{name}-", dir=into)
        for path, text in project_files(name).items():
            file = Path(aside, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        Path(aside).chmod(0o755)  # the usual mode of a new directory; mkdtemp makes private ones
        Path(aside).rename(place)
    except OSError as error:
        raise OutputError(
            "the project cannot be created", where=str(place), got=error.strerror, remedy="see --into"
        ) from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
    return place
