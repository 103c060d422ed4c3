"""Shows messages of a stream, computed from a sample of the real sources, without lasting effects.

Problem: the author of an application wants to see some messages of a stream, whichever operators are before
it: a filter, a join, a window. A run would write to sinks, keep state and take all of the input.

Design: two runs, both in a directory in memory that is deleted. The first has nothing but the sources that
lead to the stream, takes one small batch of each, and stops. The second (`scripted_run`) has those
messages as its input, ends it so that windows fire, and nothing after the stream. So every connector and
every operator is the real one, and no sink of the application is part of either.

Invariants:

1. Files are written only in a directory that is deleted, and nothing is reported to a source: no consumer
   group of Kafka, no topic of offsets.
2. A source that can be read only once is not read.

Called by `Application.preview`, through `drivetrain`.
"""

from __future__ import annotations

import dataclasses
import io
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from drivetrain.api.application import Application
from drivetrain.api.connectors.kafka import Kafka
from drivetrain.api.durations import milliseconds
from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.operations import LateMessages, Read, Write
from drivetrain.api.sinks import MemorySink, NullSink
from drivetrain.api.sources import Items, PushSource, Socket
from drivetrain.config.catalog import run as run_keys
from drivetrain.connectors.in_process.memory_sink import collected, forget
from drivetrain.connectors.in_process.plain_sinks import show_batch
from drivetrain.core.figures import show_counted
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.errors import UserError
from drivetrain.terminal import Console, printable, shortened
from drivetrain.testing.driven_run import DrivenRun
from drivetrain.testing.failures import Failures
from drivetrain.testing.rewiring import Setup, require_known
from drivetrain.testing.scripted_run import Ended, ScriptedRun, Sent, private_directory, test_config

SAMPLE_BYTES: Final = "256 KiB"
WIDTH: Final = 100
"""How wide a preview is at the prompt."""


@dataclass(frozen=True, eq=False)
class Preview:
    """The first messages that a processor gave for a sample; iterate over it for rows as dictionaries.

    `sampled` is how many messages of each source it was given.
    """

    processor: str
    messages: Any
    most: int
    sampled: Mapping[str, int]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.messages.slice(0, self.most).to_pylist())

    def __len__(self) -> int:
        return min(self.most, int(self.messages.num_rows))

    def __repr__(self) -> str:
        shown = io.StringIO()
        # In a notebook, rich would show the text there at once instead of giving it back.
        console = Console(file=shown, width=WIDTH, force_jupyter=False, color_system=None)
        show_batch(self.messages, self._title, self.most, console)
        return shown.getvalue().rstrip()

    def _repr_html_(self) -> str:
        """The same as a table of HTML."""
        names = self.messages.column_names
        head = "".join(f"<th>{_html(name)}</th>" for name in names)
        body = "".join(
            f"<tr>{''.join(f'<td>{_html(row[name])}</td>' for name in names)}</tr>\n" for row in self
        )
        left_out = self.messages.num_rows - len(self)
        more = f"<p>… and {left_out:,} more</p>" if left_out else ""
        return (
            f"<table><caption>{_html(self._title)}</caption>\n"
            f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>{more}"
        )

    @property
    def _title(self) -> str:
        taken = ", ".join(f"{show_counted(n, 'message')} of {id}" for id, n in self.sampled.items())
        return f"{self.processor}, for {taken}"


def preview(
    app: Application,
    processor: str,
    rows: int,
    *,
    sample: int = 1000,
    inputs: Mapping[str, Iterable[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    timeout: str = "30 s",
) -> Preview:
    """What `Application.preview` shows."""
    graph = app.graph(unfinished=True)
    require_known(graph, processor)
    if graph.nodes[processor].operation.is_table:
        raise UserError(
            "a table cannot be previewed", where=processor, remedy="preview a stream that joins it"
        )
    if graph.nodes[processor].operation.ends_stream:
        processor = graph.nodes[processor].inputs[0]  # the stream that the sink writes
    pruned = leading_to(graph, processor)
    given = {name: list(rows) for name, rows in (inputs or {}).items()}
    for name in given:
        require_known(graph, name, [n.id for n in graph.nodes.values() if n.operation.any_source], "source")
    sets = {name: str(value) for name, value in (config or {}).items()}
    timeout_s = milliseconds(timeout, "timeout") / 1000
    read = [n for n in pruned.nodes.values() if n.operation.stream_source is not None and n.id not in given]
    tables, columns = _sampled(graph.name, read, sample, sets, timeout_s)
    given |= {id: table.to_pylist() for id, table in tables.items()}
    kept = {n.id for n in pruned.nodes.values() if n.operation.is_table}
    setup = Setup(
        {id: given[id] for id in kept & given.keys()}, frozenset(kept - given.keys()), frozenset({processor})
    )
    run = ScriptedRun(pruned, setup, columns, sets, Failures(), timeout_s)
    try:
        sent = {id: given[id] for id in run.inputs if id in given}
        for id, messages in sent.items():
            batch = run.inputs[id].converted(messages, 0)
            if batch is not None:
                run.take(Sent(id, batch))
        run.take(Ended())
        return Preview(processor, run.emitted(processor), rows, {id: len(sent[id]) for id in sent})
    finally:
        run.close()


def leading_to(graph: Graph, id: str) -> Graph:
    """The part of a graph that leads to a processor, with nothing after it."""
    wanted: set[str] = set()
    stack = [id]
    while stack:
        node = graph.nodes[stack.pop()]
        if node.id not in wanted:
            wanted.add(node.id)
            stack += node.inputs
            if isinstance(node.operation, LateMessages):
                stack.append(node.operation.of)
    nodes = {i: node for i, node in graph.nodes.items() if i in wanted}
    read = {i for node in nodes.values() for i in node.inputs}
    for end in [i for i in nodes if i not in read]:
        nodes[f"end-of-{end}"] = Node(f"end-of-{end}", Write(NullSink()), (end,), nodes[end].where)
    return dataclasses.replace(graph, nodes=nodes)


def _sampled(
    name: str, sources: list[Node], sample: int, sets: Mapping[str, str], timeout_s: float
) -> tuple[dict[str, Any], dict[str, str]]:
    """Up to `sample` messages of each source, as Arrow tables, and their columns as DDL."""
    if not sources:
        return {}, {}
    token = f"preview-{uuid.uuid4().hex[:8]}"
    nodes: dict[str, Node] = {}
    for node in sources:
        nodes[node.id] = dataclasses.replace(node, operation=Read(_unreported(node)))
        end = f"end-of-{node.id}"
        nodes[end] = Node(end, Write(MemorySink(name=f"{token}/{node.id}")), (node.id,), node.where)
    place = private_directory()
    limits = {run_keys.MAX_BATCH_BYTES.name: SAMPLE_BYTES, run_keys.MAX_BATCH_ROWS.name: str(sample)}
    config = test_config(place, {**sets, **limits})
    run = DrivenRun(
        make_plan(Graph(f"{name}-{token}", nodes), delivery=config[run_keys.DELIVERY]),
        config,
        Failures(),
        timeout_s,
    )
    try:
        run.start()

        def has_all() -> bool:
            return all(collected(f"{token}/{node.id}").num_rows for node in sources)

        run.look_until(has_all, "a message of every source")
        tables = {node.id: collected(f"{token}/{node.id}").slice(0, sample) for node in sources}
        return tables, {node.id: run.columns(node.id) for node in sources}
    finally:
        run.stop()
        forget(*(f"{token}/{node.id}" for node in sources))
        shutil.rmtree(place, ignore_errors=True)


def _unreported(node: Node) -> Any:
    """The source of a node, reporting to nobody; raises `UserError` when it cannot be read twice."""
    source: Any = node.operation.stream_source
    if isinstance(source, Kafka):
        return dataclasses.replace(source, group=None, offset_topic=None)
    is_used_up = isinstance(source, Items) and isinstance(source.iterable, Iterator)
    if isinstance(source, Socket | PushSource) or is_used_up:
        raise UserError(
            "the source can be read only once, and a preview would take its messages",
            where=str(node),
            remedy=f'give some: app.preview(stream, inputs={{"{node.id}": [...]}})',
        )
    return source


def _html(value: object) -> str:
    return "" if value is None else escape(printable(shortened(str(value))))
