"""Restart policies from the configuration, and the state of restarts from an earlier application master.

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
    """The restart policies of each fragment and of the job; raises ConfigError when they conflict."""
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
    # For the job, 0 means never; the exponential strategy would read it as unlimited.
    job_kind = kind if job_attempts else RestartKind.NONE
    return policy, RestartPolicy(job_kind, job_attempts, **rest)


def decoded(registered: AppMasterRegistered | None) -> Mapping[str, object]:
    """The last `AppMasterReport.restarts` as plain data; empty without one."""
    if registered is None or not registered.restarts:
        return {}
    try:
        saved = msgspec.msgpack.decode(registered.restarts)
    except msgspec.MsgspecError:
        return {}  # from another version: start counting again
    return saved if isinstance(saved, dict) else {}
