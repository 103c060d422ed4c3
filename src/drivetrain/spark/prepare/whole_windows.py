"""Finds the windows that a fragment added at run time has seen completely.

Problem: a fragment that starts in the middle of a stream has only a part of the messages of the windows that
have begun by then. Their results would be wrong, and nothing would show it.

Design: a channel that was added notes the largest timestamp that its producer's messages may have had before
(`runtime.channel.beginning`). A window that starts at or before it is not whole. The fragment discards the
results of such windows; their timestamp, a window's last instant, identifies them. Where a new fragment reads
another new one, a window is not whole either if it contains a discarded one. A fragment whose state was
dropped has noted the timestamp likewise.

Only results of tumbling and sliding windows are discarded: a session's result does not contain its beginning,
and other state has no windows. Timestamps that are assigned after the channel are unknown here.

Called by `branch_frames` and `spark.run.fragment_changes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.api.connectors.application_stream import ApplicationStream
from drivetrain.api.windows import Window
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.state.dropped_state import DroppedState
from drivetrain.runtime.subscription_note import read_note

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory

_FIXED = ("tumbling", "sliding")


def window_size_ms(plan: Plan, fragment: Fragment) -> int | None:
    """The size of the windows of a fragment, in ms; None if it has no windows of a fixed size."""
    window = _fixed_window(plan, fragment)
    return None if window is None else window.size_ms


def _fixed_window(plan: Plan, fragment: Fragment) -> Window | None:
    """The windows of a fragment, if they have a fixed size."""
    if fragment.stateful is None:
        return None
    window = plan.graph.nodes[fragment.stateful].operation.grouping_window
    return window if window is not None and window.kind in _FIXED else None


def is_late(plan: Plan, fragment: str, rundir: RunDirectory) -> bool:
    """Whether a fragment, or one before it, was added while the application ran, or has dropped its state."""
    if DroppedState(rundir.fragment(fragment)).read() is not None:
        return True
    channels = [c for c in plan.channels if c.consumer_fragment == fragment]
    places = [rundir.channel(channel.id) for channel in channels]
    return any(ChannelBeginning(place).is_late for place in (*places, *_outside(plan, fragment, rundir)))


def first_whole_ms(plan: Plan, fragment: str, rundir: RunDirectory) -> int | None:
    """The time up to which a fragment's messages may lack some: windows are whole that start after it.

    None: it lacks none, or nothing is known of timestamps. Raises InputError for a damaged file.
    """
    bounds: list[int] = []
    dropped = DroppedState(rundir.fragment(fragment)).read()
    if dropped is not None and dropped.newest_ms is not None:
        bounds.append(dropped.newest_ms)
    for place in _outside(plan, fragment, rundir):
        begins = ChannelBeginning(place).read()
        if begins is not None and begins.newest_ms is not None:
            bounds.append(begins.newest_ms)
    for channel in (c for c in plan.channels if c.consumer_fragment == fragment):
        begins = ChannelBeginning(rundir.channel(channel.id)).read()
        if begins is None:
            continue
        if begins.newest_ms is not None:
            bounds.append(begins.newest_ms)
        before_ms = first_whole_ms(plan, channel.producer_fragment, rundir)
        if before_ms is not None:
            producer = next(f for f in plan.fragments if f.id == channel.producer_fragment)
            bounds.append(_newest_left_out_ms(plan, producer, before_ms))
    return max(bounds, default=None)


def _newest_left_out_ms(plan: Plan, fragment: Fragment, bound_ms: int) -> int:
    """The largest timestamp of a result that a fragment leaves out: the last instant of its newest window
    that
    starts at or before the bound."""
    window = _fixed_window(plan, fragment)
    if window is None:
        return bound_ms
    return bound_ms - bound_ms % window.step_ms + window.size_ms - 1


def _outside(plan: Plan, fragment: str, rundir: RunDirectory) -> list[str]:
    """The channels of other applications that a fragment reads."""
    own = next(f for f in plan.fragments if f.id == fragment)
    nodes = {id: plan.graph.nodes[id] for id in own.inputs if id in plan.graph.nodes}
    found = []
    for id, node in nodes.items():
        source = node.operation.stream_source
        if isinstance(source, ApplicationStream):
            note = read_note(rundir.source(id))
            found += [] if note is None else [note.channel]
    return found
