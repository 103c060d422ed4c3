"""One version of an application's graph, as it is recorded where the application has its state.

Problem: whether a changed application can continue with the state that is there depends on the graph that
wrote it. That graph was Python code, which is gone by then.

Design: of each processor what people read of it, what it reads from, where it runs, and a fingerprint of its
definition. That is enough to compare; it is not enough to run it.

Built by `version_of`; compared by `difference`, stored by `runtime.graph_versions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from drivetrain.api.operations import Operation
from drivetrain.core.plan.plan import Plan


class ProcessorRecord(msgspec.Struct, frozen=True):
    """One processor of a version.

    `kind` and `described` are what the plan shows. `inputs` are processors, `line` is where it was written.
    """

    id: str
    kind: str
    described: str
    fingerprint: str
    inputs: tuple[str, ...]
    line: str = ""

    @property
    def shown(self) -> str:
        """The processor in words: its kind and what it was given."""
        return f"{self.kind} {self.described}".strip()


class FragmentRecord(msgspec.Struct, frozen=True):
    """One fragment of a version: ids of sources and channels, and of processors; see `Fragment`."""

    inputs: tuple[str, ...]
    trunk: tuple[str, ...]
    branches: tuple[str, ...]
    stateful: str | None


class GraphVersion(msgspec.Struct, frozen=True):
    """A version of the graph of `application`: processors and fragments by id.

    `number` counts from 1 (0: not recorded yet), `made_at_ms` is when it was recorded, in ms since 1970,
    `made_by` is the user.
    """

    application: str
    processors: Mapping[str, ProcessorRecord]
    fragments: Mapping[str, FragmentRecord]
    number: int = 0
    made_at_ms: int = 0
    made_by: str = ""

    def fragment_of(self, processor: str) -> str | None:
        """The fragment that a processor runs in; None for a table, which is read whole."""
        for id, fragment in self.fragments.items():
            if processor in (*fragment.trunk, *fragment.branches):
                return id
        return None

    def is_same_graph(self, other: GraphVersion) -> bool:
        """Whether nothing differs but the number, the time, the user and the lines."""
        return _comparable(self) == _comparable(other)


def _comparable(version: GraphVersion) -> object:
    lineless = {
        id: msgspec.structs.replace(record, line="") for id, record in sorted(version.processors.items())
    }
    return version.application, lineless, dict(version.fragments)


def state_shape(plan: Plan) -> dict[str, list[str]]:
    """What of a plan Spark's checkpoints depend on: inputs and trunk of every fragment."""
    return {
        f.id: [*f.inputs, *(f"{p}: {plan.operators[p].kind} {plan.operators[p].text}" for p in f.trunk)]
        for f in plan.fragments
    }


def version_of(plan: Plan, fingerprint: Callable[[Operation], str]) -> GraphVersion:
    """The version that a plan is, not numbered yet."""
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
            )
            for id, node in plan.graph.nodes.items()
        },
        {f.id: FragmentRecord(f.inputs, f.trunk, f.branches, f.stateful) for f in plan.fragments},
    )
