"""Delivery modes: how often a message counts after a crash or a loss.

| mode | the batch in flight after a crash | a lost segment | what it costs |
|---|---|---|---|
| exactly once | runs again, outputs skip what they have | repaired | a sync to disk per file |
| at least once | runs again, a receiver may get it twice | repaired | no sync of channels |
| at most once | is left out | left out | messages, which are counted |

The mode is the application's (`Application(delivery=…)`); the key `run.delivery` overrides it. A sink
guarantees the weaker of its own guarantee and the mode's.

Called by the planner (for the guarantees of sinks), by the command line and by layer `spark`.
"""

from __future__ import annotations

from typing import Final

from drivetrain.api.graphs.graph import Delivery

EXACTLY_ONCE: Final[Delivery] = "exactly once"
AT_LEAST_ONCE: Final[Delivery] = "at least once"
AT_MOST_ONCE: Final[Delivery] = "at most once"

_WHY: Final = {
    AT_LEAST_ONCE: "the application runs at least once",
    AT_MOST_ONCE: "the application runs at most once: after a crash the batch in flight is left out",
}


def sink_guarantee(given: str, why: str, delivery: Delivery) -> tuple[str, str]:
    """A sink's guarantee in an application of that mode, and the reason, from the sink's own guarantee."""
    if delivery == AT_MOST_ONCE:
        return AT_MOST_ONCE, _WHY[AT_MOST_ONCE]
    if delivery == AT_LEAST_ONCE and given == EXACTLY_ONCE:
        return AT_LEAST_ONCE, _WHY[AT_LEAST_ONCE]
    return given, why
