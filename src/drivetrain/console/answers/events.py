"""The events of the stream of events: their types and data.

Called by `console.watching.cluster_watch` and `console.handlers.events`.
"""

from __future__ import annotations

import msgspec


class BeginEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`begin`, the first event: whether this stream continues an earlier one. If not, forget that one."""

    now_ms: int
    continues: bool


class ConnectionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`connection`: whether the console reaches a leading master, since the moment `since_ms`."""

    is_connected: bool
    since_ms: int
    problem: str | None
    remedy: str | None


class TickEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`tick`: nothing else happened for some seconds; it is `now_ms` on the console's clock."""

    now_ms: int


class GoneEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`gone`: the cluster has no such application (any more)."""

    app_id: str


class EndEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`end`, the last event of a stream: null, or why logs could not be read to their end."""

    problem: str | None
    remedy: str | None
