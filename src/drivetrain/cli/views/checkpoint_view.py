"""Describes checkpoints: the last one, and failed ones.

Called by `run_view` and `show`.
"""

from __future__ import annotations

from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFailure, CheckpointFigures
from drivetrain.core.figures import show_clock, show_counted, show_size, show_span


def last_checkpoint(figures: CheckpointFigures, now_ms: int) -> str:
    """The newest checkpoint: number, age, size, duration, slowest fragment, and its application time."""
    last = figures.last
    if last is None:
        return "none yet" if figures.running_ms is None else "the first is being made"
    age_ms = max(0, now_ms - last.started_ms - last.duration_ms)
    text = f"{last.txid}, {show_span(age_ms)} ago, {show_size(last.bytes)} in {show_span(last.duration_ms)}"
    if last.fragment_ms:
        slowest = max(last.fragment_ms, key=lambda fragment: last.fragment_ms[fragment])
        text += f" ({slowest} {show_span(last.fragment_ms[slowest])})"
    if last.as_of_ms is not None:
        text += f", states as of {show_clock(last.as_of_ms)}"
    if figures.copied_to is not None:
        text += f", copied to {figures.copied_to}"
    if figures.failed:
        text += f", {show_counted(figures.failed, 'failure')}"
    return text


def failed_checkpoint(failure: CheckpointFailure) -> str:
    """Describe a checkpoint that failed, and the reason."""
    who = f" at {', '.join(failure.fragments)}" if failure.fragments else ""
    return f"checkpoint {failure.txid} failed{who}: {failure.reason}"
