"""Applications: a named graph, its settings, and the low-level way to build it.

An application file is a plain Python program:

    from drivetrain import Application, sinks, sources

    app = Application("wordcount")
    lines = app.read(sources.text(app.setting("input", doc="a text file or a directory")))
    lines.flat_map(str.split, returns=str).group_by(word="value").count().sink(sinks.console())

Nothing runs until it is given to `drivetrain run` or to `drivetrain.run(app)`. Settings take their values
from `--set name=value`, or else from their defaults.
"""

from __future__ import annotations

import dataclasses
import graphlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, overload

from drivetrain.api.durations import milliseconds
from drivetrain.api.foreign_operator_names import APPLICATION_WORDS
from drivetrain.api.graphs.graph import Delivery, Graph, Latency, Node
from drivetrain.api.graphs.processor import Processor, name_of_processor, operation_of, require_source
from drivetrain.api.graphs.views import views
from drivetrain.api.location import Location, caller
from drivetrain.api.operations import LateMessages, Read, Union
from drivetrain.api.operations import Table as TableOperation
from drivetrain.api.operators.table import Table
from drivetrain.api.partitioners import Partitioner
from drivetrain.api.settings import REQUIRED, Setting, declare
from drivetrain.api.sources import Socket, Source, TextFiles
from drivetrain.api.spelling import other_word
from drivetrain.api.stream import Stream
from drivetrain.config.references import Secret
from drivetrain.errors import GraphError

T = TypeVar("T")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]*")


class Application:
    """A graph of processors with a name. Building it executes nothing.

    `latency` chooses how messages are processed: `"micro-batch"`, a batch at a time; `"realtime"`, one by
        one in Spark's real-time mode, an error if a fragment cannot run in it (`drivetrain plan` names the
        operator that prevents it); `"realtime where possible"`.

    `delivery` chooses how often a message counts after a crash: `"exactly once"`; `"at least once"`, which
    saves some time between fragments; `"at most once"`, which skips the batch in flight and counts it.
    `drivetrain plan` shows the resulting guarantee of each sink.

    >>> app = Application("wordcount")
    >>> lines = app.read(sources.text("in/"))
    >>> lines.flat_map(str.split, returns=str).group_by(word="value").count().sink(sinks.console())
    """

    def __init__(
        self, name: str, *, latency: Latency = "micro-batch", delivery: Delivery = "exactly once"
    ) -> None:
        if not _NAME.fullmatch(name):
            raise GraphError(
                "not a name for an application",
                where=str(caller()),
                expected="letters, digits, _ and -, starting with a letter or _",
                got=repr(name),
            )
        if latency not in get_args(Latency):
            raise GraphError(
                "unknown latency",
                where=str(caller()),
                expected=", ".join(map(repr, get_args(Latency))),
                got=repr(latency),
            )
        if delivery not in get_args(Delivery):
            raise GraphError(
                "unknown delivery",
                where=str(caller()),
                expected=", ".join(map(repr, get_args(Delivery))),
                got=repr(delivery),
            )
        self.name = name
        self.latency = latency
        self.delivery = delivery
        self.where = caller()
        self.settings: dict[str, Setting] = {}
        self._nodes: dict[str, Node] = {}
        self._asked: dict[tuple[str, str], str] = {}
        self._finish_hooks: list[Callable[[Any], None]] = []
        self._edges: list[tuple[Processor, Processor, Partitioner | None]] = []

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise other_word(self, name, APPLICATION_WORDS)

    # -- settings ----------------------------------------------------------------------------------

    @overload
    def setting(
        self, name: str, default: str = ..., *, type: None = None, doc: str = "", secret: Literal[True]
    ) -> Secret: ...
    @overload
    def setting(
        self,
        name: str,
        default: str | None = ...,
        *,
        type: None = None,
        doc: str = "",
        secret: bool | None = ...,
    ) -> Any: ...  # a str may be passed to a parameter of a Literal type
    @overload
    def setting(
        self, name: str, *, type: type[T], doc: str = "", secret: Literal[False] | None = None
    ) -> T: ...
    @overload
    def setting(
        self,
        name: str,
        default: T,
        *,
        type: type[T] | None = None,
        doc: str = "",
        secret: Literal[False] | None = None,
    ) -> T: ...
    def setting(
        self,
        name: str,
        default: Any = REQUIRED,
        *,
        type: type | None = None,
        doc: str = "",
        secret: bool | None = None,
    ) -> Any:
        """Declare a setting and return its value: from `--set name=value`, or else `default`.

        Without `type` (str, int, float or bool), the setting has the type of `default`, or str.

        The value of a `secret` setting is a reference, `${NAME}` for an environment variable or
        `${file:/path}`. The method returns a `Secret`, which you pass to options unchanged; `.value()`
        resolves it in the process that calls it. Secrets are not part of the name of the application's state.
        With `secret=False`, a setting is not a secret even if its name looks like that of one.

        Raises `ConfigError` when the setting is required and not given, cannot be read as its type, or is a
        secret given literally.

        >>> app.setting("rows", 100, doc="how many messages")
        100
        >>> app.setting("password", "${DB_PASSWORD}", secret=True)
        '${DB_PASSWORD}'
        """
        declared = declare(f"{self.name} ({caller()})", name, default, kind=type, doc=doc, secret=secret)
        self.settings[name] = declared
        return declared.value

    @property
    def naming_settings(self) -> dict[str, Any]:
        """The values of the settings that name the application's state: all except secrets.

        >>> rows = app.setting("rows", 100)
        >>> app.naming_settings
        {'rows': 100}
        """
        return {name: setting.value for name, setting in self.settings.items() if not setting.secret}

    # -- streams -----------------------------------------------------------------------------------

    @overload
    def read(self, source: TextFiles | Socket, *, name: str | None = None) -> Stream[str]: ...
    @overload
    def read(self, source: Source, *, name: str | None = None) -> Stream[Any]: ...
    def read(self, source: Source, *, name: str | None = None) -> Stream[Any]:
        """A stream of the messages of a source.

        >>> app.read(sources.text("in/"), name="words")
        Stream('words')
        """
        require_source(source)
        return self._add("read", Read(source), (), name)

    def table(self, source: Source, *, refresh: str | None = None, name: str | None = None) -> Table:
        """A bounded source that is read completely, to join streams with.

        The table is read when the application starts and, with `refresh` ("10 min"), again after that time.
        Each batch joins its messages with the newest rows at its beginning. Raises `GraphError` for an
        unbounded source, or a `refresh` that is not a duration.

        >>> kinds = app.table(sources.csv("kinds.csv", schema="item string, kind string"))
        >>> joined = sales.join(kinds, on="item")
        >>> prices = app.table(sources.csv("prices.csv", schema="item string, list double"), refresh="10 min")
        """
        require_source(source)
        if not source.bounded:
            raise GraphError("a table must be bounded, and this source does not end", where=str(caller()))
        refresh_ms = None if refresh is None else milliseconds(refresh, "refresh")
        if refresh_ms == 0:
            raise GraphError("refresh= needs a length", where=str(caller()), expected="more than 0")
        node = self._add("table", TableOperation(source, refresh_ms), (), name)
        return Table(self, node.id, refreshed=refresh_ms is not None)

    def when_finished(self, hook: Callable[[Any], None]) -> Callable[[Any], None]:
        """Call `hook(result)` in the driver when the application has finished; usable as a decorator.

        `result` is the `RunResult`. Not called when the run was stopped, failed, or had finished before.

        >>> @app.when_finished
        ... def tell(result: RunResult) -> None:
        ...     print(f"{result.batches} batches")
        """
        self._finish_hooks.append(hook)
        return hook

    def call_finish_hooks(self, result: Any) -> None:
        """Call the hooks of `when_finished`, in the order in which they were given."""
        for hook in self._finish_hooks:
            hook(result)

    # -- looking ---------------------------------------------------------------------------------------

    def preview(self, stream: Stream[Any] | str, rows: int = 10, **options: Any) -> Any:
        """Run a stream on a sample of its sources and return the first messages; nothing is written or kept.

        The sample is one small batch of each source, at most `sample` messages (1000); the end of the sample
        is the end of the input, so windows fire. The application's functions run. `inputs` maps names of
        sources and tables to rows that replace the real ones, `config` sets configuration keys, `timeout`
        ("30 s") limits the wait for messages. Returns a `drivetrain.testing.preview.Preview`, which is
        displayed at the prompt and in notebooks; iterating over it yields dictionaries. Raises `UserError`
        for a source that can be read only once, `UnavailableError` when no message comes.

        >>> def look() -> None:
        ...     print(app.preview("per_item", rows=3))
        """
        id = stream if isinstance(stream, str) else stream.id
        return views().preview(self, id, rows, **options)

    def _repr_svg_(self) -> str | None:
        """The picture of its plan, for notebooks; None while its graph cannot be planned."""
        try:
            return views().draw(self)
        except GraphError:
            return None  # the graph is not complete yet: the notebook shows the application's name

    # -- the low-level graph -----------------------------------------------------------------------

    def connect(
        self, upstream: Processor, downstream: Processor, partitioner: Partitioner | None = None
    ) -> None:
        """Send what `upstream` emits to `downstream`, distributed by `partitioner` (default: shuffle).

        >>> class Shout(Task[str, str]):
        ...     def on_next(self, message: str) -> list[str]:
        ...         return [message.upper()]
        >>> shout = Processor(Shout, parallelism=2)
        >>> app.connect(Processor(sources.text("in/")), shout)
        >>> app.connect(shout, Processor(sinks.console()), partitioners.hash("value"))
        """
        self._edges.append((upstream, downstream, partitioner))

    # -- building ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Application({self.name!r})"

    def graph(self, *, unfinished: bool = False) -> Graph:
        """The checked graph; raises `GraphError` with the faulty processor and its line.

        With `unfinished`, the graph is not checked: a part of it can be used while some streams lead nowhere
        yet.

        >>> app = Application("copy")
        >>> app.read(sources.text("in/")).sink(sinks.none())
        >>> list(app.graph().nodes)
        ['read', 'sink']
        """
        nodes = {**self._nodes, **self._connected()}
        for id, node in list(nodes.items()):
            if isinstance(node.operation, LateMessages):
                nodes[id] = dataclasses.replace(node, inputs=nodes[node.operation.of].inputs)
        graph = Graph(self.name, nodes, self.latency, self.delivery)
        if not unfinished:
            graph.check()
        return graph

    def _connected(self) -> dict[str, Node]:
        inputs: dict[Processor, list[tuple[Processor, Partitioner | None]]] = {}
        for up, down, partitioner in self._edges:
            inputs.setdefault(up, [])
            inputs.setdefault(down, []).append((up, partitioner))
        try:
            order = list(
                graphlib.TopologicalSorter(
                    {p: [u for u, _ in ups] for p, ups in inputs.items()}
                ).static_order()
            )
        except graphlib.CycleError as error:
            ring = " → ".join(name_of_processor(p) for p in reversed(error.args[1]))
            raise GraphError(
                f"the graph has a cycle: {ring}",
                where=str(error.args[1][0].where),
                remedy="remove one of these edges",
            ) from error
        ids: dict[Processor, str] = {}
        nodes: dict[str, Node] = {}
        for p in order:
            ids[p] = self._unique(name_of_processor(p), p.name, p.where, {**self._nodes, **nodes})
            ups = inputs[p]
            operation, reads = operation_of(p, ups), tuple(ids[u] for u, _ in ups)
            if operation.target is not None and len(reads) > 1:
                # A sink writes one stream: the outputs of several processors are united first.
                id = self._unique("union", None, p.where, {**self._nodes, **nodes, ids[p]: p})
                nodes[id] = Node(id, Union(), reads, p.where)
                reads = (id,)
            nodes[ids[p]] = Node(ids[p], operation, reads, p.where)
        return nodes

    def _add(self, kind: str, operation: Any, inputs: tuple[str, ...], name: str | None) -> Stream[Any]:
        where = caller()
        for id in inputs:
            if id not in self._nodes:
                raise GraphError(f"{id!r} belongs to another application", where=str(where))
        id = self._unique(kind, name, where, self._nodes)
        self._nodes[id] = Node(id, operation, inputs, where)
        return Stream(self, id)

    def _cut(self, id: str) -> None:
        self._nodes[id] = dataclasses.replace(self._nodes[id], cut=True)

    def _unique(
        self, kind: str, name: str | None, where: Location, taken: Mapping[str, Node | Processor]
    ) -> str:
        if name is not None:
            if not _NAME.fullmatch(name):
                raise GraphError("not an id for a processor", where=str(where), got=repr(name))
            if name in taken:
                raise GraphError(
                    f"two processors are called {name!r}",
                    where=str(where),
                    got=f"the first is at {taken[name].where}",
                    remedy="give one of them another name",
                )
            return name
        base = re.sub(r"[^a-zA-Z0-9_-]", "_", kind)
        if base not in taken:
            return base
        return next(c for n in range(2, len(taken) + 3) if (c := f"{base}-{n}") not in taken)


__all__ = ["Application"]
