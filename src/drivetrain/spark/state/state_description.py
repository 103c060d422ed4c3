"""What the state in a fragment's checkpoint is, for whoever asks without having the application.

Problem: Spark keeps bytes and buffers; what they mean is known to the operator that is compiled over them, in
the process that runs it. Somebody who asks from elsewhere has the state directory only.

Design: the operation itself, pickled into the fragment's directory whenever the fragment is compiled, with
the application's own classes in it. It never comes from anywhere but the state directory: who may write there
runs code in the application anyway. Who asks may be the process that has these classes: what is read are
copies of them, since the pickler would otherwise put what it reads into the classes that are there.

Called by `fragment` (writes) and `state_query` (reads).
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.cloudpickle.cloudpickle import _make_skeleton_class, _make_skeleton_enum

from drivetrain.api.graph import Node
from drivetrain.api.operations import Operation
from drivetrain.errors import InputError
from drivetrain.runtime.durable import write_whole, writing

_FILE: Final = "operator"
_MAKERS: Final = (_make_skeleton_class, _make_skeleton_enum)
"""What the pickler makes classes with; the last argument but one says which class of this process it is."""


def note_operator(fragment: Path, node: Node) -> None:
    """Say what the state of a fragment is, if it is one that can be asked for."""
    if not node.operation.can_be_asked:
        return
    content = cloudpickle.dumps(node.operation)
    with writing("what the state of a fragment is", fragment / _FILE):
        write_whole(fragment / _FILE, content, is_shared=True)


def noted_operator(fragment: Path) -> Operation | None:
    """What `note_operator` said; None if the fragment keeps no state that can be asked for.

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
