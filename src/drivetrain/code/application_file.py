"""Loads an application from the Python file that a user wrote.

Problem: a file is a program. It may raise in the user's own code, and define no application, or several.

Design: the file runs as a module in its own namespace, with its folder on the path so that it can import its
neighbours, as if Python ran it directly. An exception from it becomes an `ApplicationFileError` with only the
user's frames.

Invariants:
1. Loading runs the file once, and executes nothing of the graph.
2. Settings that the file declares with `app.setting` have the values of `sets`.
3. What runs is the text of the file now, never bytecode of an earlier one.

Called by the commands of `drivetrain` that take a file.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import ClassVar, Final

from drivetrain.api import Application
from drivetrain.api.settings import given_settings
from drivetrain.code.installed_code import is_installed
from drivetrain.config import did_you_mean, split_sets
from drivetrain.errors import DrivetrainError, UserError

MODULE_PREFIX: Final = "drivetrain_application_"
"""The prefix of application files' module names, so that they never shadow an importable module."""

_BUILD: Final = "build"


class ApplicationFileError(UserError):
    """The application's file cannot be loaded; `user_traceback` is set when the user's own code raised."""

    code: ClassVar[str] = "application-file"

    def __init__(
        self,
        what: str,
        *,
        where: str,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
        user_traceback: str | None = None,
    ) -> None:
        super().__init__(what, where=where, expected=expected, got=got, remedy=remedy)
        self.user_traceback = user_traceback


def load_application(target: str, sets: Mapping[str, str], *, optional: Collection[str] = ()) -> Application:
    """Load the application of "file.py" or "file.py:name", giving its settings the values of `sets`.

    `name` is an `Application`, or a function that returns one or fills the one it receives. Without a name
    the file must define exactly one `Application`, or a function `build`. Raises ApplicationFileError, or
    ConfigError for a name in `sets` that is neither a setting of the application nor a configuration key,
    unless it is in `optional`.
    """
    path, name = split_target(target)
    with given_settings(sets):
        module = _run_file(path)
        application = _find(module, path, name)
    unknown = set(optional) - application.settings.keys()
    split_sets({name: value for name, value in sets.items() if name not in unknown}, application.settings)
    return application


def load_same(
    target: str,
    given: Mapping[str, str],
    name: str,
    settings: Mapping[str, str],
    more: Mapping[str, str] | None = None,
) -> Application:
    """Load the next version of the application `name`, with the settings of the one that runs.

    `given` are those of the command line, `more` further ones. Raises as `load_application`, and as
    `require_same`.
    """
    sets = {**(more or {}), **settings, **given}
    application = load_application(target, sets, optional=sets.keys() - given.keys())
    require_same(application, target, name, settings)
    return application


def load_function(target: str, name: str) -> Callable[..., object]:
    """The function `name` of "file.py", or that of "file.py:other"; raises ApplicationFileError.

    What the function itself raises becomes an ApplicationFileError with the user's frames, too.
    """
    path, other = split_target(target)
    module, wanted = _run_file(path), other or name
    function = getattr(module, wanted, None)
    if not inspect.isfunction(function):
        known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise ApplicationFileError(
            f"the file has no function {wanted}",
            where=str(path),
            expected=f"def {wanted}(stream): ...",
            remedy=did_you_mean(wanted, known, otherwise="add it"),
        )

    @functools.wraps(function)
    def called(*given: object) -> object:
        try:
            return function(*given)
        except DrivetrainError:
            raise
        except Exception as error:
            raise _raised_in(path, error) from error

    return called


def split_target(target: str) -> tuple[Path, str | None]:
    """Split "file.py:name" into the file and the name; raises ApplicationFileError when there is no file."""
    path, colon, name = target.rpartition(":")
    if not colon or "/" in name or name.endswith(".py"):
        path, name = target, ""
    file = Path(path)
    if file.is_file():
        return file, name or None
    folder = file.parent if file.parent.is_dir() else Path()
    neighbours = [str(folder / found.name) for found in sorted(folder.glob("*.py"))]
    raise ApplicationFileError(
        "this is a directory, not a Python file" if file.is_dir() else "there is no such file",
        where=path,
        expected="the path of a Python file that holds an application",
        remedy=did_you_mean(path, neighbours, otherwise="check the path"),
    )


class _CompiledEachTime(SourceFileLoader):
    """Compiles the file whenever it is loaded, as Python does with the file that it runs.

    Bytecode belongs to a size and a second: after a second edit of the same size within it, it is the first.
    """

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _run_file(path: Path) -> ModuleType:
    name = MODULE_PREFIX + re.sub(r"\W", "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        raise ApplicationFileError(
            "not a Python file", where=str(path), expected="a file whose name ends in .py", remedy="rename it"
        )
    spec.loader = loader = _CompiledEachTime(name, str(path.resolve()))
    module = importlib.util.module_from_spec(spec)
    _make_importable(path)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except (DrivetrainError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise ApplicationFileError(
            "the file ended the program while it was loaded",
            where=str(path),
            got=f"sys.exit({error.code!r})",
            remedy="build the application without calling sys.exit",
        ) from error
    except BaseException as error:
        raise _raised_in(path, error) from error
    return module


def _make_importable(path: Path) -> None:
    """Let this process, and the Python workers that its Spark starts, import the file's neighbours."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    make_importable_for_workers(path)


def make_importable_for_workers(path: Path) -> None:
    """Let processes that are started from now on import the neighbours of an application's file."""
    folder = str(path.resolve().parent)
    inherited = os.environ.get("PYTHONPATH", "")
    if folder not in inherited.split(os.pathsep):
        os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{inherited}" if inherited else folder


def _find(module: ModuleType, path: Path, name: str | None) -> Application:
    if name is not None:
        return _named(module, path, name)
    found = {key: value for key, value in vars(module).items() if isinstance(value, Application)}
    distinct = {id(value): key for key, value in found.items()}
    if len(distinct) == 1:
        return next(iter(found.values()))
    if distinct:
        names = sorted(distinct.values())
        raise ApplicationFileError(
            "the file contains several applications",
            where=str(path),
            got=", ".join(names),
            remedy=f"name the one to take: {path}:{names[0]}",
        )
    if inspect.isfunction(getattr(module, _BUILD, None)):
        return _named(module, path, _BUILD)
    raise ApplicationFileError(
        "the file contains no application",
        where=str(path),
        expected='a module-level variable such as app = Application("name"), or a function build()',
        remedy=f"add one, or name the function that builds it: {path}:function",
    )


def _named(module: ModuleType, path: Path, name: str) -> Application:
    if not hasattr(module, name):
        known = [key for key in vars(module) if not key.startswith("_")]
        raise ApplicationFileError(
            f'the file has nothing called "{name}"',
            where=str(path),
            remedy=did_you_mean(name, known, otherwise="check the name"),
        )
    value = getattr(module, name)
    if inspect.isfunction(value):
        value = _build(value, path)
    if not isinstance(value, Application):
        raise ApplicationFileError(
            f'"{name}" is not an application',
            where=str(path),
            expected="an Application, or a function that returns one or fills its argument",
            got=type(value).__name__,
            remedy="return the Application",
        )
    return value


def _build(function: object, path: Path) -> object:
    assert inspect.isfunction(function)
    parameters = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if len(parameters) > 1:
        raise ApplicationFileError(
            f'the function "{function.__name__}" takes more than one argument',
            where=str(path),
            expected="no argument, or one: the application to fill",
            remedy="read other values with app.setting",
        )
    try:
        if not parameters:
            return function()
        application = Application(re.sub(r"\W", "_", path.stem))
        function(application)
    except DrivetrainError:
        raise
    except Exception as error:
        raise _raised_in(path, error) from error
    return application


def _raised_in(path: Path, error: BaseException) -> ApplicationFileError:
    return ApplicationFileError(
        "the application's file raised an exception while it was loaded",
        where=str(path),
        user_traceback=user_traceback(error),
        remedy="install what it imports, or put it beside the file"
        if isinstance(error, ImportError)
        else "correct the file",
    )


def user_traceback(error: BaseException) -> str:
    """The traceback of `error` with the user's own frames only: no library, no Drivetrain."""
    shown = traceback.TracebackException.from_exception(error)
    shown.__cause__ = shown.__context__ = None
    shown.stack = traceback.StackSummary.from_list(
        [frame for frame in traceback.extract_tb(error.__traceback__) if not is_installed(frame.filename)]
    )
    return "".join(shown.format()).rstrip()


def require_same(application: Application, file: str, name: str, settings: Mapping[str, str]) -> None:
    """Raise UserError unless the application of a file has the name and the settings of the one that runs."""
    new = {name: str(value) for name, value in application.naming_settings.items()}
    if (application.name, new) != (name, settings):
        raise UserError(
            "the file holds another application",
            where=file,
            expected=_with_settings(name, settings),
            got=_with_settings(application.name, new),
            remedy="the name and the settings of an application cannot change",
        )


def _with_settings(name: str, settings: Mapping[str, str]) -> str:
    """An application with its settings, as text."""
    return f"{name} with {', '.join(f'{key}={value}' for key, value in settings.items()) or 'no settings'}"
