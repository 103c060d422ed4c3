"""Edits of a graph without its file: attach a part, remove or replace a processor.

Problem: a few lines of code should add a window to a running application, or remove one. Its graph is
available as data; the `Stream` objects of its file are not.

Design: each edit makes another graph of the same application. A function of the user receives the stream of a
processor, as in an application's file, and adds processors to it. If it has a second parameter, that receives
the application, from which the function may read further sources and tables.

Called by `drivetrain attach`, `drivetrain remove`, `drivetrain replace`, and the handle of
`drivetrain.start`.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from drivetrain.api.application import Application
from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.stream import Stream
from drivetrain.errors import GraphError, UserError

Attach: TypeAlias = Callable[..., Any]
"""Takes a stream, and the application if it has a second parameter; `replaced` uses its result."""


def attached(graph: Graph, to: str, attach: Attach) -> Graph:
    """The graph with the processors that `attach` adds after processor `to`.

    Raises UserError for an unknown processor, a sink, or when nothing is added, and any error of `attach`.

    >>> app = Application("copy")
    >>> app.read(sources.text("in/"), name="lines").sink(sinks.none(), name="out")
    >>> more = attached(app.graph(), "lines", lambda lines: lines.sink(sinks.console(), name="seen"))
    >>> list(more.nodes)
    ['lines', 'out', 'seen']
    """
    node = _known(graph, to)
    if node.operation.ends_stream or node.operation.is_table:
        raise UserError(
            f"nothing can be attached to {to}",
            expected="a processor that emits messages",
            got=f"a {type(node.operation).__name__.lower()}",
            remedy=f"name the processor before it, such as {', '.join(node.inputs) or 'a source'}",
        )
    app = _application(graph, graph.nodes.values())
    _call(attach, app, (to,))
    made = app.graph()
    if made.nodes.keys() == graph.nodes.keys():
        raise UserError(
            "nothing was attached", where=to, remedy="add processors to the stream, and end it with a sink"
        )
    return made


def removed(graph: Graph, id: str) -> Graph:
    """The graph without processor `id`, all that reads from it, and processors that then lead nowhere.

    Raises UserError for an unknown processor, and when no sink would be left.

    >>> app = Application("copy")
    >>> lines = app.read(sources.text("in/"), name="lines")
    >>> lines.sink(sinks.none(), name="out")
    >>> lines.filter("value > ''", name="long").sink(sinks.none(), name="kept")
    >>> list(removed(app.graph(), "long").nodes)
    ['lines', 'out']
    """
    _known(graph, id)
    gone = _with_followers(graph, id)
    left = {node.id: node for node in graph.nodes.values() if node.id not in gone}
    while True:
        read = {input for node in left.values() for input in (*node.inputs, *_aside(node))}
        idle = [node.id for node in left.values() if not node.operation.ends_stream and node.id not in read]
        if not idle:
            break
        for unread in idle:
            del left[unread]
    if not left:
        raise UserError(
            f"nothing would be left of the application without {id}",
            remedy="stop the application, or remove less",
        )
    made = dataclasses.replace(graph, nodes=left)
    made.check()
    return made


def replaced(graph: Graph, id: str, replace: Attach) -> Graph:
    """The graph in which the stream that `replace` returns takes the place and name of processor `id`.

    `replace` receives the streams that the processor reads. Every processor that read the replaced one reads
    the stream that it returns instead; to replace a sink, it returns nothing. Raises UserError for an unknown
    processor or a source, and when `replace` returns something else.

    >>> app = Application("copy")
    >>> app.read(sources.text("in/"), name="lines").filter("value > ''", name="f").sink(sinks.none())
    >>> longer = replaced(app.graph(), "f", lambda lines: lines.filter("value > 'm'"))
    >>> list(longer.nodes)
    ['lines', 'f', 'sink']
    """
    node = _known(graph, id)
    if not node.inputs:
        raise UserError(
            f"{id} is a source, so it cannot be replaced",
            expected="an operator or a sink",
            remedy="change the source in the application's file, and update the application",
        )
    followers = _with_followers(graph, id)
    app = _application(graph, (n for n in graph.nodes.values() if n.id not in followers))
    before = set(app._nodes)
    result = _call(replace, app, tuple(i for i in node.inputs if not graph.nodes[i].operation.is_table))
    if node.operation.ends_stream:
        return app.graph()
    if not isinstance(result, Stream) or result._app is not app or result.id in before:
        raise UserError(
            f"the replacement of {id} returns no stream that it has made",
            expected="the stream of the processor in its place",
            got=repr(result),
            remedy="return the last stream",
        )
    names = {result.id: id} if id not in app._nodes else {}
    nodes = [_renamed(made, names) for made in app._nodes.values()]
    in_place = {id: names.get(result.id, result.id)}
    behind = [_renamed(n, in_place) for n in graph.nodes.values() if n.id in followers and n.id != id]
    return _application(graph, [*nodes, *behind]).graph()


def _known(graph: Graph, id: str) -> Node:
    if id not in graph.nodes:
        near = difflib.get_close_matches(id, graph.nodes, 1)
        raise UserError(
            f"the application has no processor {id}",
            expected=", ".join(graph.nodes),
            remedy=f"perhaps {near[0]}" if near else "drivetrain plan shows the processors",
        )
    return graph.nodes[id]


def _application(graph: Graph, nodes: Iterable[Node]) -> Application:
    app = Application(graph.name, latency=graph.latency, delivery=graph.delivery)
    app._nodes = {node.id: node for node in nodes}
    return app


def _call(function: Attach, app: Application, inputs: tuple[str, ...]) -> object:
    """The result of a user's function for streams; with one more parameter it also gets the application."""
    streams = [Stream[Any](app, id) for id in inputs]
    parameters = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    given = [*streams, app] if len(parameters) == len(streams) + 1 else streams
    if len(parameters) != len(given):
        raise GraphError(
            "the function takes another number of arguments",
            expected=f"{len(streams)}: the streams of {', '.join(inputs)}; one more would be the application",
            got=str(len(parameters)),
            remedy="change its parameters",
        )
    return function(*given)


def _with_followers(graph: Graph, id: str) -> set[str]:
    found = {id}
    for node in graph.nodes.values():  # in topological order
        if found.intersection((*node.inputs, *_aside(node))):
            found.add(node.id)
    return found


def _aside(node: Node) -> tuple[str, ...]:
    """The processor whose late messages or early results a node reads, in addition to its inputs."""
    of = getattr(node.operation, "of", None)
    return (of,) if isinstance(of, str) else ()


def _renamed(node: Node, names: dict[str, str]) -> Node:
    inputs = tuple(names.get(input, input) for input in node.inputs)
    return dataclasses.replace(node, id=names.get(node.id, node.id), inputs=inputs)
