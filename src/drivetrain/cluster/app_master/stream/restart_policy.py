"""Restart policies from the configuration, and what an earlier application master said of restarts.

Called by `__main__` and `running_job`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from drivetrain.cluster.messages.registration import AppMasterRegistered
from drivetrain.config import Config
from drivetrain.config.catalog import application as keys
from drivetrain.core.job.restarts import RestartKind, RestartPolicy


def policies(config: Config) -> tuple[RestartPolicy, RestartPolicy]:
    """The restart policies of each fragment and of the job; raises ConfigError when they make no sense."""
    kind = RestartKind(config[keys.RESTART_STRATEGY])
    attempts, job_attempts = config[keys.RESTART_ATTEMPTS], config[keys.JOB_ATTEMPTS]
    rest: dict[str, Any] = {
        "delay_ms": config[keys.RESTART_DELAY],
        "multiplier": config[keys.RESTART_MULTIPLIER],
        "maximum_ms": config[keys.RESTART_MAXIMUM_DELAY],
        "reset_after_ms": config[keys.RESTART_RESET_AFTER],
        "jitter": config[keys.RESTART_JITTER],
        "interval_ms": config[keys.RESTART_INTERVAL],
    }
    policy = RestartPolicy(kind, attempts, **rest)
    # Unlike for a fragment, 0 means never here: the exponential strategy reads it as without end.
    job_kind = kind if job_attempts else RestartKind.NONE
    return policy, RestartPolicy(job_kind, job_attempts, **rest)


def decoded(registered: AppMasterRegistered | None) -> Mapping[str, object]:
    """What `AppMasterReport.restarts` said last, as plain data; empty when there was none."""
    if registered is None or not registered.restarts:
        return {}
    try:
        saved = msgspec.msgpack.decode(registered.restarts)
    except msgspec.MsgspecError:
        return {}  # another version's: counting begins anew
    return saved if isinstance(saved, dict) else {}
