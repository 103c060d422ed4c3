"""Which worker gets a request for slots: placement policies, in a table that can be extended.

A policy is a function from a request's preferences and a worker's load to a sort key; of the workers with
enough free slots, the one with the smallest key gets the request. Ties are broken by the order of
registration.

Called by `drivetrain.core.cluster.slots`; `register_policy` by users that add a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from drivetrain.errors import ConfigError


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """A worker as policies see it: `used` of `slots` are taken, by `processes` processes."""

    name: str
    host: str
    slots: int
    used: int
    processes: int


@dataclass(frozen=True, slots=True)
class Preference:
    """The part of a request that policies see: `hosts` are preferred hosts or names of workers."""

    app_id: str
    slots: int
    hosts: tuple[str, ...] = ()


Policy = Callable[[Preference, WorkerLoad], tuple[float, ...]]


def spread(preference: Preference, worker: WorkerLoad) -> tuple[float, ...]:
    """The least loaded worker, so that the loss of a worker affects little."""
    return (worker.used / max(1, worker.slots), worker.processes / max(1, worker.slots), -worker.slots)


def pack(preference: Preference, worker: WorkerLoad) -> tuple[float, ...]:
    """The fullest worker with enough free slots, so that whole workers stay free for large requests."""
    return (worker.slots - worker.used - preference.slots, -worker.processes)


def locality(preference: Preference, worker: WorkerLoad) -> tuple[float, ...]:
    """A worker on a preferred host, the first named first; else as `spread`."""
    wanted = preference.hosts
    places = [at for at, host in enumerate(wanted) if host in (worker.host, worker.name)]
    return (places[0] if places else len(wanted), *spread(preference, worker))


_policies: Final[dict[str, Policy]] = {"spread": spread, "pack": pack, "locality": locality}

POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(_policies)
"""The policies, by the names that requests use."""


def register_policy(name: str, policy: Policy) -> None:
    """Add a policy, in every process that may lead. Raises `ConfigError` when the name is taken."""
    if name in _policies:
        raise ConfigError(
            "a placement policy of this name exists",
            where=name,
            remedy="choose another name than " + ", ".join(_policies),
        )
    _policies[name] = policy
