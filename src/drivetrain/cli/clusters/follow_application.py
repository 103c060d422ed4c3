"""Watches an application of a cluster until it is over, or until the user stops watching.

Design: the views are those of `drivetrain run`. Ctrl-C, or a termination signal, ends only the watching: the
application belongs to the cluster.

Called by `submit --attached` and `show --watch`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from drivetrain.cli.clusters.cluster_progress import StatusEvents
from drivetrain.cli.running.stop import StopSignals
from drivetrain.cli.views.run_view import LineView, LiveView, RunView, ViewTexts
from drivetrain.core.job.run_progress import NoticeGiven
from drivetrain.terminal import Console

if TYPE_CHECKING:
    from drivetrain.cluster.client import BlockingClient, ReportEnd

_WORDS: Final = ViewTexts(
    starting="waiting for the first executor …",
    hint="Ctrl-C detaches",
    stopping="detaching; the application keeps running",
)


def watch(client: BlockingClient, app_id: str, interval_ms: int) -> tuple[ReportEnd | None, int]:
    """Show an application's progress; returns its end and 0, or None and the exit code of a signal."""
    from drivetrain.cluster.client import ReportEnd, ShowNotice, ShowStatus

    view = _view(interval_ms)
    events = StatusEvents()
    with (
        StopSignals(view.on_stop_requested, "detached at once; the application keeps running") as stop,
        view.showing(),
    ):
        for seen in _closing(client, app_id):
            if isinstance(seen, ShowStatus):
                for event in events.of(seen.status):
                    view.on_event(event)
            elif isinstance(seen, ShowNotice):
                view.on_event(NoticeGiven(seen.text))
            elif isinstance(seen, ReportEnd):
                return seen, 0
            view.tick()
            if stop.requested:
                break
    return None, stop.exit_code


def reattach_hint(app_id: str) -> str:
    """The text for the user when only the watching ended."""
    return (
        f"detached: {app_id} keeps running in the cluster\n"
        f"  watch it again: drivetrain show {app_id} --watch\n"
        f"  end it:         drivetrain kill {app_id}"
    )


def _closing(client: BlockingClient, app_id: str) -> Iterator[Any]:
    with contextlib.closing(client.follow(app_id)) as seen:  # type: ignore[type-var]
        yield from seen


def _view(interval_ms: int) -> RunView:
    if sys.stderr.isatty() and sys.stdout.isatty():
        return LiveView(Console(stderr=True), redirect_stdout=True, words=_WORDS)
    return LineView(sys.stderr, interval_ms, words=_WORDS)
