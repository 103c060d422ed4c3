"""Sends the user's own code to Spark's workers by value.

Spark's pickler sends a function of an importable module by name, and a worker that cannot import the module
fails. The modules that contain an application's functions (its own file, and modules next to it) are
therefore sent as code; installed packages are still sent by name. Objects that cannot be sent are found
before anything runs, and the error has the name under which the function refers to them: Spark would only
print its own traceback.
"""

from __future__ import annotations

import functools
import inspect
import sys
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from drivetrain.api.graphs.graph import Graph
from drivetrain.code.installed_code import is_installed
from drivetrain.errors import GraphError


def ship(graph: Graph) -> list[str]:
    """Have every user module that the graph's functions are in or use sent by value; returns their names.

    Raises `GraphError` for a function that cannot be sent.
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
            # The worker looks up its imports from the same folder by name, so they must be sent, too.
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
    except Exception as error:  # noqa: BLE001 - anything that the user's object raises when pickled
        return error
    return None


def _modules(thing: Any) -> list[ModuleType]:
    """The modules that define `thing` (a function, class, object, module or partial)."""
    if isinstance(thing, ModuleType):
        return [thing]
    if isinstance(thing, functools.partial):
        return [m for part in (thing.func, *thing.args, *thing.keywords.values()) for m in _modules(part)]
    plain = inspect.isroutine(thing) or inspect.isclass(thing)
    # Of any other object only static attributes are read: asking a proxy may have effects.
    name = getattr(thing, "__module__", None) if plain else inspect.getattr_static(thing, "__module__", None)
    module = sys.modules.get(name if isinstance(name, str) else type(thing).__module__)
    return [] if module is None else [module]


def _is_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__":
        return False  # built in; and the contents of __main__ are sent by value anyway
    return not is_installed(file)
