"""A graph with the user's code as bytes, so that another process, or a later one, can run it.

Problem: going back to an earlier version, or ending a batch with the version that it began with, needs code
that its file no longer has.

Design: the operations are plain data; the user's functions, classes and modules in them are pickled by value,
as they are for Spark's workers. The bytes are in the application's state directory, which only its owner can
write, and are never loaded from anywhere else: loading them runs code. They fit the version of Python that
made them. A graph that holds a literal secret is not kept.

Called by `preparing` and `application_versions`, and by the commands that change a running application.
"""

from __future__ import annotations

import sys
from typing import Final

from pyspark import cloudpickle

from drivetrain.api.graphs.graph import Graph
from drivetrain.api.graphs.literal_secrets import written_out_in
from drivetrain.config.references import HOW
from drivetrain.errors import InputError, UserError
from drivetrain.spark.prepare.code_shipping import ship

LARGEST_BYTES: Final = 64 << 20
"""A larger graph contains data, not only code."""


def graph_as_code(graph: Graph) -> bytes:
    """The graph as bytes; raises UserError when something in it cannot be kept."""
    secrets = written_out_in(graph)
    if secrets:
        raise UserError(
            "the application's graph holds a literal secret, which must not be stored",
            where=", ".join(secrets),
            expected="a reference to it: ${NAME} of the environment, or ${file:/path}",
            remedy=HOW,
        )
    ship(graph)
    mark = _mark()
    try:
        code = mark + bytes(cloudpickle.dumps(graph))
    except Exception as error:
        raise UserError(
            "the application's graph cannot be kept",
            expected="sources, sinks and functions that can be pickled",
            got=f"{type(error).__name__}: {error}",
            remedy="stop the application and run it with the new graph",
        ) from error
    if len(code) > LARGEST_BYTES:
        raise UserError(
            "the application's graph is too large to be kept",
            expected=f"at most {LARGEST_BYTES >> 20} MiB",
            got=f"{len(code) >> 20} MiB",
            remedy="read the data from files, not from items in the application's file",
        )
    return code


def code_if_possible(graph: Graph) -> bytes | None:
    """The graph as bytes; None when it cannot be kept, for instance because it holds an iterator."""
    try:
        return graph_as_code(graph)
    except UserError:
        return None


def graph_from_code(code: bytes, where: str) -> Graph:
    """The graph that `graph_as_code` has pickled; raises InputError when this process cannot load it."""
    mark = _mark()
    if not code.startswith(mark):
        raise _unloadable(where, f"kept by {code[:20].partition(b';')[0].decode('utf-8', 'replace')!r}")
    try:
        graph = cloudpickle.loads(code[len(mark) :])
    except Exception as error:
        raise _unloadable(where, f"{type(error).__name__}: {error}") from error
    if not isinstance(graph, Graph):
        raise _unloadable(where, f"a {type(graph).__name__}")
    return graph


def _unloadable(where: str, got: str) -> InputError:
    return InputError(
        "the code of a version cannot be loaded",
        where=where,
        expected=f"code that was kept by Python {sys.version_info.major}.{sys.version_info.minor}",
        got=got,
        remedy="run the application with the file that it was written in",
    )


def _mark() -> bytes:
    return f"Python {sys.version_info.major}.{sys.version_info.minor};".encode()
