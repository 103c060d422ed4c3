"""Partitioners: how an edge distributes messages over the tasks of the next processor.

Hashes are Spark's own (Murmur3 with a fixed seed): stable across processes and versions, unlike
Python's `hash`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from drivetrain.api.foreign_operator_names import PARTITIONER_WORDS
from drivetrain.api.spelling import names_of_module

__all__ = [
    "Partitioner",
    "broadcast",
    "colocation",
    "custom",
    "hash",
    "shuffle",
    "shuffle_grouping",
]

if not TYPE_CHECKING:
    __getattr__ = names_of_module("drivetrain.partitioners", __all__, PARTITIONER_WORDS)


@dataclass(frozen=True)
class Partitioner:
    """A way to distribute messages; create one with the functions of this module.

    >>> Partitioner("hash", ("user",)) == hash("user")
    True
    """

    kind: Literal["hash", "shuffle", "shuffle grouping", "broadcast", "co-location", "custom"]
    columns: tuple[str, ...] = ()
    fn: Callable[[Any, int], int] | None = None

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.columns)})" if self.columns else self.kind


def hash(*columns: str) -> Partitioner:
    """Messages with equal values in `columns` (all of them, when none is named) meet in one task.

    >>> print(hash("user", "day"))
    hash(user, day)
    """
    return Partitioner("hash", columns)


def shuffle() -> Partitioner:
    """Round robin from a random start: even load, no order.

    >>> print(shuffle())
    shuffle
    """
    return Partitioner("shuffle")


def shuffle_grouping() -> Partitioner:
    """A new random order of the tasks every round: even load also for messages that alternate.

    >>> print(shuffle_grouping())
    shuffle grouping
    """
    return Partitioner("shuffle grouping")


def broadcast() -> Partitioner:
    """Every task gets every message.

    >>> print(broadcast())
    broadcast
    """
    return Partitioner("broadcast")


def colocation() -> Partitioner:
    """Messages stay where they are: task i feeds task i; both ends need the same parallelism.

    >>> print(colocation())
    co-location
    """
    return Partitioner("co-location")


def custom(choose: Callable[[Any, int], int]) -> Partitioner:
    """`choose(message, tasks)` returns the task, from 0 to tasks − 1; it must not depend on `hash`.

    >>> by_length = custom(lambda word, tasks: len(word) % tasks)
    >>> by_length.fn("apple", 4)
    1
    """
    return Partitioner("custom", fn=choose)
