"""Shows channels and clocks of fragments: as tables on wide terminals, as sentences on narrow ones.

Problem: a dozen figures per channel do not fit into one row of a terminal, and most of them are irrelevant
while nothing is wrong.

Design: `show` prints all figures, as a table on a wide terminal and as one sentence per channel on a narrow
one. The views of a run show only what needs attention: channels that wait, and losses. The diagnosis
(`core.diagnosis`) explains why a channel waits.

Called by `cli.inspection.show` and `cli.views.run_view`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.console import RenderableType

from drivetrain.core.figures import show_clock, show_count, show_counted, show_size, show_span
from drivetrain.terminal import Table, Text

if TYPE_CHECKING:
    from drivetrain.cluster.messages.following import FragmentView
    from drivetrain.core.channel.channel_progress import ChannelProgress
    from drivetrain.core.job.run_progress import FragmentProgressed

Figures: TypeAlias = "FragmentProgressed | FragmentView"
"""The progress of a fragment in this process, or a cluster's view of one; both have the fields used here."""

WIDE: Final = 125
"""The least width, in characters, for a table of channels."""


def channels_of(fragments: Sequence[Figures], width: int) -> RenderableType | None:
    """All figures of an application's channels; None when it has none."""
    channels = [channel for fragment in fragments for channel in fragment.channels]
    if not channels:
        return None
    return _table(channels) if width >= WIDE else Text("\n".join(map(_sentence, channels)) + "\n")


def show_delay(figures: Figures) -> str:
    """How far the newest message is ahead of the clock: "2.0 s", or "–" if unknown."""
    return "–" if figures.watermark_delay_ms is None else show_span(figures.watermark_delay_ms)


def attention(figures: Figures) -> list[str]:
    """What waits in a fragment's channels, and what was lost, a phrase each; nothing while all goes well."""
    phrases: list[str] = []
    for channel in figures.channels:
        parts = [_lag(channel)] if channel.lag_rows else []
        parts += [f"window full for {show_span(channel.blocked_ms)}"] if channel.blocked_ms else []
        parts += _losses(channel)
        if parts:
            is_outside = channel.producer == figures.fragment
            of = f"to {channel.subscriber}" if is_outside else f"from {channel.producer}"
            phrases.append(f"{of}: {', '.join(parts)}")
    return phrases


def _table(channels: Sequence[ChannelProgress]) -> Table:
    table = Table()
    table.add_names("channel")
    for heading in ("lag", "bytes", "behind", "unacked", "blocked", "losses", "replays", "on disk"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("clock (UTC)", no_wrap=True)
    for channel in channels:
        table.add_row(
            f"{channel.producer} → {channel.subscriber}",
            show_count(channel.lag_rows),
            show_size(channel.lag_bytes),
            "–" if channel.lag_ms is None else show_span(channel.lag_ms),
            _unacknowledged(channel),
            show_span(channel.blocked_ms) if channel.blocked_ms else "–",
            _marked(channel.losses),
            _marked(channel.replays),
            show_size(channel.kept_bytes),
            show_clock(channel.clock_ms),
        )
    return table


def _sentence(channel: ChannelProgress) -> str:
    parts = [_lag(channel), f"{_unacknowledged(channel)} unacknowledged"]
    parts += [f"window full for {show_span(channel.blocked_ms)}"] if channel.blocked_ms else []
    parts += _losses(channel)
    parts += [f"{show_size(channel.kept_bytes)} on disk", f"clock {show_clock(channel.clock_ms)}"]
    return f" {channel.producer} → {channel.subscriber}: {', '.join(parts)}"


def _lag(channel: ChannelProgress) -> str:
    if not channel.lag_rows:
        return "nothing waits"
    behind = "" if channel.lag_ms is None else f", {show_span(channel.lag_ms)} behind"
    return f"{show_counted(channel.lag_rows, 'message')} ({show_size(channel.lag_bytes)}) wait{behind}"


def _unacknowledged(channel: ChannelProgress) -> str:
    window = f" of {show_count(channel.window_rows)}" if channel.window_rows else ""
    return f"{show_count(channel.unacknowledged_rows)}{window}"


def _losses(channel: ChannelProgress) -> list[str]:
    found = [show_counted(channel.losses, "loss", "losses")] if channel.losses else []
    found += [show_counted(channel.replays, "replay")] if channel.replays else []
    return found + ([f"{show_counted(channel.dropped, 'message')} dropped"] if channel.dropped else [])


def _marked(count: int) -> Text:
    return Text(show_count(count), style="bold yellow" if count else "dim")
