"""Send the user's own code to Spark's workers by value.

Spark's pickler sends a function of an importable module by name, and a worker that cannot import the
module fails. The modules that an application's functions live in (its own file, what lies beside it)
are therefore sent as code; installed packages are still sent by name. What cannot be sent at all is
found before anything runs, with the name that the function knows it by: Spark would only print its own
traceback.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from drivetrain.api.graph import Graph
from drivetrain.errors import GraphError

_INSTALLED = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("purelib", "platlib", "stdlib")}
)
_OWN = str(Path(__file__).resolve().parent.parent.parent)


def ship(graph: Graph) -> list[str]:
    """Have every user module that the graph's functions live in or use sent by value; returns their names.

    Raises `GraphError` for a function that cannot be sent at all.
    """
    shipped: list[str] = []
    left = [
        m for node in graph.nodes.values() for thing in node.operation.user_code() for m in _modules(thing)
    ]
    while left:
        module = left.pop(0)
        if _is_users(module) and module.__name__ not in shipped:
            cloudpickle.register_pickle_by_value(module)
            shipped.append(module.__name__)
            # What it imports from beside it is looked for by name on the worker, so it must go along.
            left += [m for value in vars(module).values() for m in _modules(value)]
    for node in graph.nodes.values():
        for thing in node.operation.user_code():
            _refuse_unsendable(thing, str(node))
    return shipped


def _refuse_unsendable(thing: Any, where: str) -> None:
    error = _unsendable(thing)
    if error is None:
        return
    held = inspect.getclosurevars(thing) if inspect.isfunction(thing) else None
    known = {**held.globals, **held.nonlocals} if held is not None else {}
    culprits = [name for name, value in known.items() if _unsendable(value) is not None]
    holds = f"{', '.join(culprits)}: " if culprits else ""
    raise GraphError(
        "a function cannot be sent to Spark's workers",
        where=where,
        expected="a function that refers only to data and other functions",
        got=f"{holds}{error}",
        remedy="create locks, files, connections and sessions inside the function (or in a Task's on_start)",
    ) from error


def _unsendable(thing: Any) -> Exception | None:
    try:
        cloudpickle.dumps(thing)
    except Exception as error:  # noqa: BLE001 - whatever the user's object raises when it is pickled
        return error
    return None


def _modules(thing: Any) -> list[ModuleType]:
    """The modules that `thing` (a function, class, object, module or partial) lives in."""
    if isinstance(thing, ModuleType):
        return [thing]
    if isinstance(thing, functools.partial):
        return [m for part in (thing.func, *thing.args, *thing.keywords.values()) for m in _modules(part)]
    plain = inspect.isroutine(thing) or inspect.isclass(thing)
    # Of any other object only what it has is looked at: asking a proxy may have effects.
    name = getattr(thing, "__module__", None) if plain else inspect.getattr_static(thing, "__module__", None)
    module = sys.modules.get(name if isinstance(name, str) else type(thing).__module__)
    return [] if module is None else [module]


def _is_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__":
        return False  # built in; and what is in __main__ is sent by value anyway
    path = str(Path(file).resolve())
    return not path.startswith(tuple(f"{place}{os.sep}" for place in (*_INSTALLED, _OWN)))
