"""Finds the application master class in a user's file.

`ApplicationSpec.app_master` is "module:Class". A module with the name of the application's own file means
that file, loaded once per process, as `run` loads application files; any other is imported, with the unpacked
archive on the path.

Called by the client (`declared_app_master`), the application master's process and the executors'.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from drivetrain.cluster.app_master.app_master import ApplicationMaster
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.code.application_file import MODULE_PREFIX, ApplicationFileError, user_traceback
from drivetrain.errors import DrivetrainError


def declared_app_master(path: Path, name: str | None = None) -> type[ApplicationMaster] | None:
    """The application master class that the file defines itself, None when it defines none.

    `name` picks one of several. Runs the file; raises ApplicationFileError.
    """
    module = _run(path)
    found = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, ApplicationMaster)
        and value.__module__ == module.__name__
    }
    if name is not None:
        return found.get(name)
    if len(found) > 1:
        raise ApplicationFileError(
            "the file contains several application masters",
            where=str(path),
            got=", ".join(sorted(found)),
            remedy=f"name the one to take: {path}:{min(found)}",
        )
    return next(iter(found.values()), None)


def spelled(path: Path, cls: type[ApplicationMaster]) -> str:
    """The value of `ApplicationSpec.app_master` for a class that `path` defines."""
    return f"{path.stem}:{cls.__name__}"


def load_app_master(spec: ApplicationSpec, code_directory: str) -> type[ApplicationMaster]:
    """The class that the spec names; raises ApplicationFileError."""
    named, _, name = (spec.app_master or "").partition(":")
    path = Path(code_directory) / spec.file
    if named == path.stem:
        module = _run(path)
    else:
        _make_importable(code_directory)
        try:
            module = importlib.import_module(named)
        except Exception as error:
            raise _raised(named, error) from error
    cls = getattr(module, name, None)
    if not (isinstance(cls, type) and issubclass(cls, ApplicationMaster)):
        raise ApplicationFileError(
            "there is no such application master",
            where=f"{named}:{name}",
            expected="a class derived from drivetrain.cluster.app_master.ApplicationMaster",
            got="nothing" if cls is None else type(cls).__name__,
            remedy="define it in the application's file",
        )
    return cls


def _run(path: Path) -> ModuleType:
    name = f"{MODULE_PREFIX}{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None or not path.is_file():
        raise ApplicationFileError("there is no such Python file", where=str(path), remedy="check the path")
    _make_importable(str(path.resolve().parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except DrivetrainError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        raise _raised(str(path), error) from error
    return module


def _make_importable(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _raised(where: str, error: Exception) -> ApplicationFileError:
    return ApplicationFileError(
        "the application's file raised an exception while it was loaded",
        where=where,
        user_traceback=user_traceback(error),
        remedy="correct the file",
    )
