"""The cluster: masters, workers, and totals.

Called by `console.handlers.cluster` and `console.watching.cluster_watch`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Shows: TypeAlias = Literal["cluster", "runs"]


class Master(msgspec.Struct, frozen=True, kw_only=True):
    """A master, as the answering master knows it; its last message came `silent_ms` ago (null: never)."""

    address: str
    leads: bool
    term: int
    silent_ms: int | None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker; registered at the moment `registered_ms`. `cpu` is the share of all cores in use, 0 to 1.

    `launched` are the ids of the processes that it runs; each begins with the id of its application.
    """

    worker_id: str
    name: str
    host: str
    slots: int
    free_slots: int
    registered_ms: int
    cpu: float
    memory_free_bytes: int
    launched: tuple[str, ...]


class Masters(msgspec.Struct, frozen=True, kw_only=True):
    """All masters on the list."""

    masters: tuple[Master, ...]


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """All registered workers, by name.

    `local` are the names of those that the `drivetrain local` of this console runs, which can be removed;
    null when none started it, or it does not answer.
    """

    workers: tuple[Worker, ...]
    local: tuple[str, ...] | None


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster in short, at the moment `now_ms`. `leader` is the address of the master that leads.

    Without a leader (`leader` null) nothing can be submitted or changed, applications keep running, and the
    figures about workers and applications are those that were known last. `applications` counts them by
    state. With `shows` "runs" there is no cluster: the applications are the runs of one machine.
    """

    version: str
    shows: Shows
    now_ms: int
    leader: str | None
    term: int
    masters: tuple[Master, ...]
    workers: int
    slots: int
    free_slots: int
    applications: dict[str, int]


class ConfigurationValue(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the console's configuration; `value` is `***` for a secret, `origin` is where it was set."""

    key: str
    value: str
    default: str
    origin: str
    description: str


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration that the console runs with, by key."""

    values: tuple[ConfigurationValue, ...]
