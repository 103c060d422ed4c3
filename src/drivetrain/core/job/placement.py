"""Which executor runs a fragment.

Problem: fragments are Spark queries, so any number of them fits into one executor, but they share its cores;
and restarting one is cheapest where its Java process and its state are warm.

Design: the executor that had the fragment before, if it still exists; else the one with the fewest fragments
per slot; among equals one on a preferred host; among these the first in the given order. Preferred are the
hosts of the input with the fewest distinct producer hosts; inputs with more than eight are ignored.

Invariants:
1. The choice depends on the arguments only.
2. There is a choice whenever there is an executor.

Called by `core.job.job`, which holds a `Placement`. Preferred locations are Apache Flink's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from drivetrain.core.job.fragment_execution import ExecutorId, FragmentId

MOST_LOCATIONS: Final = 8


@dataclass(frozen=True, slots=True)
class ReadyExecutor:
    """An executor that is ready for fragments; `slots` is at least 1."""

    id: ExecutorId
    slots: int
    host: str


def preferred_hosts(inputs: Sequence[AbstractSet[str]]) -> frozenset[str]:
    """The producer hosts of the input that has the fewest of them; empty if every input is spread too widely.

    `inputs` holds the distinct producer hosts of each input.
    """
    narrow = [hosts for hosts in inputs if 0 < len(hosts) <= MOST_LOCATIONS]
    if not narrow:
        return frozenset()
    fewest = min(len(hosts) for hosts in narrow)
    return frozenset(next(hosts for hosts in narrow if len(hosts) == fewest))


def choose(
    executors: Sequence[ReadyExecutor],
    load: Mapping[ExecutorId, int],
    previous: ExecutorId | None = None,
    preferred: AbstractSet[str] = frozenset(),
) -> ExecutorId | None:
    """The executor for one more fragment, None without any; `load` counts the fragments that each has."""
    if any(executor.id == previous for executor in executors):
        return previous
    ranked = [
        (load.get(executor.id, 0) / executor.slots, executor.host not in preferred, order)
        for order, executor in enumerate(executors)
    ]
    return executors[min(ranked)[2]].id if ranked else None


class Placement:
    """The executors that are ready for fragments, and where each fragment ran last."""

    def __init__(self) -> None:
        self._executors: dict[ExecutorId, ReadyExecutor] = {}
        self._previous: dict[FragmentId, ExecutorId] = {}

    @property
    def executors(self) -> Mapping[ExecutorId, ReadyExecutor]:
        """The ready executors by id, the oldest first."""
        return MappingProxyType(self._executors)

    def add(self, executor: ReadyExecutor) -> None:
        """An executor is ready for fragments."""
        self._executors[executor.id] = executor

    def remove(self, executor: ExecutorId) -> None:
        """An executor is lost; no effect when it is unknown."""
        self._executors.pop(executor, None)

    def had(self, fragment: FragmentId, executor: ExecutorId) -> None:
        """An attempt of the fragment has ended there, so the fragment is warm there."""
        self._previous[fragment] = executor

    def choose(
        self, fragment: FragmentId, placed: Sequence[ExecutorId], producers: Sequence[ExecutorId | None]
    ) -> ExecutorId | None:
        """The executor for `fragment`, None without any.

        `placed` holds the executor of every fragment that is placed now, `producers` that of each producer.
        """
        hosts = [self._executors[p].host if p in self._executors else None for p in producers]
        near = preferred_hosts([frozenset() if host is None else frozenset({host}) for host in hosts])
        executors = tuple(self._executors.values())
        return choose(executors, Counter(placed), self._previous.get(fragment), near)
