"""How a fragment fares with a version on trial: whether messages have reached it, or none come.

Problem: a batch without messages shows nothing about new code, but a trial must end in an application that is
idle, too.

Design: `TrialProgress.look` is called again and again. Once a fragment is to run the version, it has
`run.trial-wait` to get a message. After that it has waited, if no batch of it runs and nothing is left for it
to read: a long batch, or a backlog, may still show whether the code works.

What if we die here: the next process waits again for as long.

Invariants:

1. A fragment has never waited while it has something to process.

Called by `live_changes`, and by the cluster's executor.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain.config.catalog import run as run_keys
from drivetrain.spark.run.fragment_versions import has_reached

if TYPE_CHECKING:
    from drivetrain.runtime.running_config import RunningConfig
    from drivetrain.spark.run.fragment_driver import FragmentDriver


@dataclass(frozen=True)
class SeenProgress:
    """The first batch that a fragment has begun with a version.

    `has_shown` is whether messages have reached the version in a committed batch, `has_waited` whether the
    fragment has waited for some in vain.
    """

    began: int | None = None
    has_shown: bool = False
    has_waited: bool = False


class TrialProgress:
    """The progress of one fragment with the version on trial; `config` has how long it waits for messages."""

    def __init__(self, config: RunningConfig) -> None:
        self._config: Final = config
        self._since: tuple[int, float] | None = None  # the version, and when the fragment was to run it

    def look(self, driver: FragmentDriver, number: int, has_proven: bool | None = None) -> SeenProgress:
        """The progress with version `number`, which is on trial.

        `has_proven` is whether the handover of a version at an event time has shown that it works; such a
        trial ends at that time of the messages. None: the version takes effect with the next batch.
        """
        query = driver.query
        is_known = query.versions is not None and not driver.is_recovering
        began = query.versions.began(number) if query.versions is not None and is_known else None
        if has_proven is not None or not is_known:
            return SeenProgress(began, has_shown=has_proven is True)
        if began is not None and has_reached(query, number):
            return SeenProgress(began, has_shown=True)
        return SeenProgress(began, has_waited=self._has_waited(driver, number, began))

    def _has_waited(self, driver: FragmentDriver, number: int, began: int | None) -> bool:
        query, now_s = driver.query, time.monotonic()
        if query.versions is None or query.versions.wanted.number != number or driver.is_finished:
            return False
        if self._since is None or self._since[0] != number:
            self._since = number, now_s
        if (now_s - self._since[1]) * 1000 < self._config[run_keys.TRIAL_WAIT]:
            return False
        return not query.busy and query.is_committed() and (began is not None or query.waits_for_data)
