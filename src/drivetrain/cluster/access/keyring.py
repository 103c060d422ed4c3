"""The keys of a cluster's processes, all derived from one secret; each process holds only those it needs.

Problem: a process that has the key of a connection can impersonate either end of it. A client must not be
able to impersonate a worker; an application's process, which runs its users' code, must not impersonate
another application's process or a master; and users should have only one secret to manage.

Design: keys form a tree, in which each is derived from the one above it and none from one below
(HMAC-SHA256):

    cluster (the secret)
      ├ master
      ├ worker ── app.ID.EPOCH ── executor.ID.EPOCH.LAUNCH, and peers.ID.EPOCH
      └ client ── reach ── reach.ID.EPOCH

Two processes use the key of the lesser of them, as both can derive it: a worker and a master use `worker`, an
application master and a worker the application master's, an executor and its application master the
executor's. Two executors of one application use `peers`. Clients do not have the keys below `worker`, and
applications not those below `client`; between clients and applications or workers, `reach` is used.

A process holds the keys that it cannot derive itself, once for each secret in use:

    master: cluster     worker: worker, reach     client: client
    application master: its own, and its reach    executor: its own, and its peers

A worker passes the processes that it launches their keys as text, in their environment. The same text, made
by `drivetrain key`, gives a machine the keys of one role only; a process with the secret can take any role.

Invariants:
1. A process cannot derive the keys of connections that it takes no part in, except masters (all keys),
   workers (all keys of applications), and application masters (the keys of their executors).
2. Keys are never shown by `repr`.

Called by `connection`, for the settings of the remote layer, and by workers.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from drivetrain.actor.remote.keys import require_secret_length
from drivetrain.cluster.access.system_names import ProcessName, Role, app_master_name, read_name
from drivetrain.errors import ConfigError

MOST_SECRETS: Final = 2
"""The secret, and the one that it replaces."""

_CLUSTER: Final = "cluster"
_REACH: Final = "reach"
_PREFIX: Final = "drivetrain-key:"
_PART: Final = re.compile(r"([A-Za-z0-9_.-]{1,250})=([0-9a-f]{64})")

Holding: TypeAlias = Mapping[str, bytes]
"""Keys by their place in the tree, all of one secret."""


class Keyring:
    """The keys of the system named `me`; `read` returns the current texts that they come from.

    Each text is a secret or a result of `text_for`. Raises ConfigError for any other text.
    """

    def __init__(self, me: str, read: Callable[[], Sequence[str]]) -> None:
        self._me: Final = me
        self._read: Final = read
        self._texts: tuple[str, ...] = ()
        self._holdings: tuple[Holding, ...] = ()
        self._refresh()

    def keys_for(self, peer: str) -> tuple[bytes, ...]:
        """The keys shared with the system named `peer`, one for each secret; none when they never connect."""
        place = _shared(self._me, peer)
        if place is None:
            return ()
        self._refresh()
        found = (_find(holding, place) for holding in self._holdings)
        return tuple(key for key in found if key is not None)

    def text_for(self, system: str) -> str:
        """The keys of another process as text, one line per secret; for a launch, or another machine.

        Raises ConfigError when this process does not have them.
        """
        self._refresh()
        lines = []
        for holding in self._holdings:
            keys = {place: _find(holding, place) for place in _held_by(system)}
            if keys and None not in keys.values():
                parts = (f"{place}={key.hex()}" for place, key in keys.items() if key is not None)
                lines.append(_PREFIX + ",".join(parts))
        if not lines:
            raise ConfigError(
                f"the keys of {system} cannot be made from those of {self._me}",
                remedy="make them on a machine with the cluster's secret; masters need the secret itself",
            )
        return "\n".join(lines)

    def _refresh(self) -> None:
        texts = tuple(self._read())
        if texts != self._texts:
            self._holdings = tuple(map(read_holding, texts))
            self._texts = texts

    def __repr__(self) -> str:
        return f"<the keys of {self._me}>"


def read_holding(text: str) -> Holding:
    """Parse the keys of a text: a secret, or a result of `Keyring.text_for`; raises ConfigError."""
    if not text.startswith(_PREFIX):
        require_secret_length(text)
        return {_CLUSTER: text.encode()}
    parts = [_PART.fullmatch(part) for part in text.removeprefix(_PREFIX).split(",")]
    holding = {part[1]: bytes.fromhex(part[2]) for part in parts if part is not None}
    if len(holding) != len(parts):
        raise ConfigError(
            "this is not a key of a cluster",
            expected="the unchanged output of `drivetrain key`",
            remedy="make it again on a machine with the secret of the cluster",
        )
    return holding


def _find(holding: Holding, place: str) -> bytes | None:
    """Derive the key at a place in the tree from the nearest one above that is held; None if none is."""
    key = holding.get(place)
    if key is not None:
        return key
    above = _above(place)
    parent = None if above is None else _find(holding, above)
    return None if parent is None else hmac.digest(parent, b"drivetrain key|" + place.encode(), "sha256")


def _above(place: str) -> str | None:
    kind, _, rest = place.partition(".")
    match kind:
        case "master" | "worker" | "client":
            return _CLUSTER
        case "app":
            return Role.WORKER.value
        case "executor" | "peers":
            app_id, epoch = rest.split(".")[:2]
            return app_master_name(app_id, int(epoch))
        case "reach":
            return _REACH if rest else Role.CLIENT.value
        case _:
            return None


def _held_by(system: str) -> tuple[str, ...]:
    """The keys that a process of this name needs."""
    match read_name(system):
        case ProcessName(Role.WORKER):
            return (Role.WORKER.value, _REACH)
        case ProcessName(Role.CLIENT):
            return (Role.CLIENT.value,)
        case ProcessName(Role.APP_MASTER, app_id, epoch):
            return (system, f"{_REACH}.{app_id}.{epoch}")
        case ProcessName(Role.EXECUTOR, app_id, epoch):
            return (system, f"peers.{app_id}.{epoch}")
        case _:
            return ()


def _shared(me: str, peer: str) -> str | None:
    """The place of the key that two systems share; None when they never connect."""
    one, other = read_name(me), read_name(peer)
    if one is None or other is None:
        return None
    # The lesser role first.
    (lesser, name), (greater, _) = sorted(
        ((one, me), (other, peer)), key=lambda each: _RANKS.index(each[0].role)
    )
    is_same = (lesser.app_id, lesser.epoch) == (greater.app_id, greater.epoch)
    match lesser.role, greater.role:
        case Role.EXECUTOR, Role.EXECUTOR:
            return f"peers.{lesser.app_id}.{lesser.epoch}" if is_same else None
        case Role.EXECUTOR, Role.APP_MASTER:
            return name if is_same else None
        case (Role.EXECUTOR, Role.CLIENT) | (Role.APP_MASTER, Role.APP_MASTER) | (Role.CLIENT, Role.CLIENT):
            return None
        case Role.APP_MASTER, Role.CLIENT:
            return f"{_REACH}.{lesser.app_id}.{lesser.epoch}"
        case Role.CLIENT, Role.WORKER:
            return _REACH
        case _:
            return name


_RANKS: Final = (Role.EXECUTOR, Role.APP_MASTER, Role.CLIENT, Role.WORKER, Role.MASTER)
