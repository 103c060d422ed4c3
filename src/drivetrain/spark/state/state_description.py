"""Describes the state in a fragment's checkpoint to processes that do not have the application.

Problem: Spark keeps bytes and buffers; only the operator that is compiled over them, in the process that runs
it, knows what they mean. A query from elsewhere has only the state directory.

Design: the operation itself, with the application's own classes, is pickled into the fragment's directory
whenever the fragment is compiled. It is only ever read from the state directory: anyone who may write there
runs code in the application anyway. The reader may be the process that has these classes, so it reads copies
of them: otherwise the pickler would write into the existing classes.

Called by `fragment` (writes) and `state_query` (reads).
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.cloudpickle.cloudpickle import _make_skeleton_class, _make_skeleton_enum

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Operation
from drivetrain.durable import write_whole, writing
from drivetrain.errors import InputError

_FILE: Final = "operator"
_MAKERS: Final = (_make_skeleton_class, _make_skeleton_enum)
"""The pickler's class makers; their last argument but one identifies a class of this process."""


def note_operator(fragment: Path, node: Node) -> None:
    """Store the description of a fragment's state, if that state can be queried."""
    if not node.operation.can_be_asked:
        return
    content = cloudpickle.dumps(node.operation)
    with writing("what the state of a fragment is", fragment / _FILE):
        write_whole(fragment / _FILE, content, is_shared=True)


def noted_operator(fragment: Path) -> Operation | None:
    """The operation that `note_operator` stored; None if the fragment has no state that can be queried.

    Raises InputError when it cannot be read here.
    """
    file = fragment / _FILE
    try:
        operation: Operation = _Copies(io.BytesIO(file.read_bytes())).load()
    except FileNotFoundError:
        return None
    except Exception as error:
        raise InputError(
            "the description of a fragment's state cannot be read here",
            where=str(file),
            expected="an operation, and the modules that its functions use",
            got=f"{type(error).__name__}: {error}",
            remedy="run the query in an environment that has the application's packages",
        ) from error
    return operation


class _Copies(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if found in _MAKERS:
            return lambda *given: found(*given[:-2], None, given[-1])
        return found
