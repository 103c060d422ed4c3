"""One version of an application's graph, as recorded in the state directory.

Problem: whether a changed application can continue with its existing state depends on the graph that wrote
that state. That graph was Python code, which is gone by then.

Design: a record of each processor: the description that the plan shows, its inputs, its fragment, and a
fingerprint of its definition. That is enough to compare two versions; `runtime.graph_versions` keeps the code
to run one.

Built by `version_of`; compared by `difference`, stored by `runtime.graph_versions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from drivetrain.api.graphs.graph import Graph
from drivetrain.api.operations import Operation, Subscription
from drivetrain.core.plan.delivery import EXACTLY_ONCE
from drivetrain.core.plan.plan import Plan

Made: TypeAlias = Literal["run", "update", "rollback", "subscribe", "unsubscribe"]
"""How a version came into force: an application was started with it, or was changed while it ran, perhaps
because another application reads from it, or no longer does."""

_VERSIONED: Final = re.compile(r"(?P<rules>.*?); version (?P<version>\d{1,9}) of .*", re.DOTALL)
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_KEPT_KINDS: Final = frozenset({"eventtime", "union", "late", "latepanes"})


class ProcessorRecord(msgspec.Struct, frozen=True):
    """One processor of a version.

    `kind` and `described` are what the plan shows. `inputs` are processors, `line` is where it was declared.
    `state` is what its state depends on. A state of `version` 1 and above can be migrated to a later version
    with the same `rules`.
    """

    id: str
    kind: str
    described: str
    fingerprint: str
    inputs: tuple[str, ...]
    line: str = ""
    state: str = ""
    version: int = 0
    rules: str = ""

    @property
    def shown(self) -> str:
        """The processor as the plan shows it: its kind and description."""
        return f"{self.kind} {self.described}".strip()


class FragmentRecord(msgspec.Struct, frozen=True):
    """One fragment of a version: ids of sources and channels, and of processors; see `Fragment`."""

    inputs: tuple[str, ...]
    trunk: tuple[str, ...]
    branches: tuple[str, ...]
    stateful: str | None


class SubscriptionRecord(msgspec.Struct, frozen=True):
    """A subscription of another application to `stream`; see `api.operations.Subscription`."""

    id: str
    stream: str
    reader: str
    source: str
    key: str
    drop_after_ms: int | None = None

    @property
    def channel(self) -> str:
        """The channel that keeps the stream for its reader."""
        return f"{self.stream}--{self.id}.{self.key}"

    @property
    def is_well_named(self) -> bool:
        """Whether its names can be those of files, and its id is that of its reader's source."""
        names = (self.id, self.stream, self.reader, self.source, self.key)
        is_own = self.id == subscription_id(self.reader, self.source)
        return is_own and all(_FILE_NAME.fullmatch(name) for name in names)


def subscription_id(reader: str, source: str) -> str:
    """The processor that keeps a stream for the source of a reader."""
    return f"{reader}.{source}"


class GraphVersion(msgspec.Struct, frozen=True):
    """A version of the graph of `application`: processors and fragments by id.

    `number` counts from 1 (0: not recorded yet), `made_at_ms` is when it was recorded, in ms since 1970,
    `made_by` is the user, `made_how` is how it came into force, and `follows` is the version that was in
    force before it (0: none). `exactly_once` are the sinks that publish with checkpoints, if there are any.
    `new_sinks` are those that no earlier version had, if it came while the application ran. `discards`:
    fragments of the previous version that it lacks do not process the rest of their input. `schemas` are
    Spark's, as JSON, of the channels that these read, and of those that its new fragments read. At `at_ms`, a
    time of the messages, the version that it follows hands over to it (None: with the next batch).
    `subscriptions` are those of other applications. `drops` are the fragments that begin this version with an
    empty state. With `history_ms`, its new fragments also have the messages from that time on that were
    before it; the running fragments `history_of` had read them. `places` are those to which only one sink may
    write, by sink.
    """

    application: str
    processors: Mapping[str, ProcessorRecord]
    fragments: Mapping[str, FragmentRecord]
    number: int = 0
    made_at_ms: int = 0
    made_by: str = ""
    made_how: Made = "run"
    follows: int = 0
    exactly_once: tuple[str, ...] = ()
    new_sinks: tuple[str, ...] = ()
    discards: bool = False
    schemas: Mapping[str, Any] = {}
    at_ms: int | None = None
    subscriptions: tuple[SubscriptionRecord, ...] = ()
    drops: tuple[str, ...] = ()
    history_ms: int | None = None
    history_of: tuple[str, ...] = ()
    places: Mapping[str, str] = {}

    def fragment_of(self, processor: str) -> str | None:
        """The fragment that a processor runs in; None for a table, which is read whole."""
        for id, fragment in self.fragments.items():
            if processor in (*fragment.trunk, *fragment.branches):
                return id
        return None

    def producers(self, fragment: str) -> dict[str, tuple[str, ...]]:
        """The processors whose messages a fragment reads from channels, by the fragment that writes them."""
        own = self.fragments[fragment]
        found: dict[str, tuple[str, ...]] = {}
        for id in (*own.trunk, *own.branches):
            for input in self.processors[id].inputs:
                home = self.fragment_of(input)
                if home not in (None, fragment):
                    found[home] = tuple(dict.fromkeys((*found.get(home, ()), input)))
        return found

    def channel_producers(self, fragment: str) -> dict[str, str]:
        """The fragments that write the channels which a fragment reads, by channel."""
        found: dict[str, str] = {}
        read = [(input, home) for home, inputs in self.producers(fragment).items() for input in inputs]
        for channel in self.channels(fragment):
            of = [(len(input), home) for input, home in read if channel.startswith(f"{input}--")]
            found[channel] = max(of)[1]  # the name of a processor may begin with that of another one
        return found

    def channels(self, fragment: str) -> tuple[str, ...]:
        """The channels that a fragment reads."""
        return tuple(id for id in self.fragments[fragment].inputs if id not in self.processors)

    def sources(self, fragment: str) -> tuple[str, ...]:
        """The sources that a fragment reads itself."""
        return tuple(id for id in self.fragments[fragment].inputs if id in self.processors)

    def kept(self, fragment: str) -> tuple[str, ...]:
        """The processors of a trunk that a checkpoint of the fragment depends on, in topological order.

        Its sources, the stateful processor, and those that may need an input of Spark's for a clock.
        """
        own = self.fragments[fragment]
        fixed = {*own.inputs, own.stateful}
        return tuple(id for id in own.trunk if id in fixed or self.processors[id].kind in _KEPT_KINDS)

    def shape_of(self, fragment: str) -> list[str]:
        """The parts of a fragment that Spark's checkpoint of it depends on."""
        own = self.fragments[fragment]
        found = [*own.inputs, *(f"{id}: {self._kept_as(id)}" for id in self.kept(fragment))]
        read = () if own.stateful is None else self.processors[own.stateful].inputs
        if len(read) > 1:  # the state depends on which input each message came from
            found += [f"{own.stateful} reads {', '.join(sorted(self._origins(fragment, id)))}" for id in read]
        return found

    def _origins(self, fragment: str, id: str) -> set[str]:
        """The sources of a fragment, and the processors elsewhere, that messages of a processor come from."""
        own = self.fragments[fragment]
        if id in own.inputs or id not in own.trunk:
            return {id}
        return {origin for input in self.processors[id].inputs for origin in self._origins(fragment, input)}

    @property
    def state_shape(self) -> dict[str, list[str]]:
        """The parts that Spark's checkpoints depend on, of every fragment."""
        return {id: self.shape_of(id) for id in self.fragments}

    def _kept_as(self, processor: str) -> str:
        record = self.processors[processor]
        state = record.state or record.described
        if record.version:
            return f"{record.kind} {record.rules}; version {record.version} of {state}"
        return f"{record.kind} {state}"

    def is_same_graph(self, other: GraphVersion) -> bool:
        """Whether nothing differs but the number, the time, the user, the lines and the order of branches."""
        return _comparable(self) == _comparable(other)


def state_fits(shape: Any, plan: Plan) -> bool:
    """Whether a plan can continue with checkpoints of this `state_shape`."""
    new = state_shape(plan)
    if not isinstance(shape, Mapping) or shape.keys() != new.keys():
        return False
    return all(isinstance(shape[id], list) and shapes_fit(shape[id], new[id]) for id in new)


def shapes_fit(old: Sequence[Any], new: Sequence[str]) -> bool:
    """Whether a query can continue from a checkpoint with another `shape_of` its fragment.

    >>> shapes_fit(["a: process by k; version 1 of n: value of int"], ["a: process by k; version 2 of m"])
    True
    """
    return len(old) == len(new) and all(map(_parts_fit, old, new))


def _parts_fit(old: Any, new: str) -> bool:
    if old == new or not isinstance(old, str):
        return bool(old == new)
    before, after = _VERSIONED.fullmatch(old), _VERSIONED.fullmatch(new)
    if before is None or after is None or before["rules"] != after["rules"]:
        return False
    return int(before["version"]) < int(after["version"])  # the query migrates it, or refuses it


def _comparable(version: GraphVersion) -> object:
    lineless = {
        id: msgspec.structs.replace(record, line="") for id, record in sorted(version.processors.items())
    }
    # Edits of a graph put processors elsewhere in its order, which changes nothing of what branches do.
    fragments = {
        id: msgspec.structs.replace(record, branches=tuple(sorted(record.branches)))
        for id, record in version.fragments.items()
    }
    return version.application, lineless, fragments


def state_shape(plan: Plan) -> dict[str, list[str]]:
    """The parts of a plan that Spark's checkpoints depend on, as `GraphVersion.state_shape`."""
    return version_of(plan, lambda _: "").state_shape


def subscriptions_of(graph: Graph) -> tuple[SubscriptionRecord, ...]:
    """The subscriptions of other applications in a graph."""
    found = []
    for node in graph.nodes.values():
        if isinstance(operation := node.operation, Subscription):
            of = (operation.reader, operation.source, operation.key, operation.drop_after_ms)
            found.append(SubscriptionRecord(node.id, node.inputs[0], *of))
    return tuple(found)


def version_of(plan: Plan, fingerprint: Callable[[Operation], str]) -> GraphVersion:
    """The version that a plan describes, without a number yet."""
    return GraphVersion(
        plan.application,
        {
            id: ProcessorRecord(
                id,
                plan.operators[id].kind,
                plan.operators[id].text,
                fingerprint(node.operation),
                tuple(node.inputs),
                plan.operators[id].where,
                node.operation.state_described,
                *node.operation.state_version,
            )
            for id, node in plan.graph.nodes.items()
        },
        {f.id: FragmentRecord(f.inputs, f.trunk, f.branches, f.stateful) for f in plan.fragments},
        exactly_once=tuple(sink.id for sink in plan.sinks if sink.guarantee == EXACTLY_ONCE),
        subscriptions=subscriptions_of(plan.graph),
    )
