"""The settings of a worker, and the configuration of the processes that it starts.

Called when a worker starts, and for every launch.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drivetrain.api.graphs.literal_secrets import literal_secrets, refuse_literal_secrets
from drivetrain.config import Config, find_key
from drivetrain.config.catalog import cluster, run
from drivetrain.config.catalog import worker as keys
from drivetrain.runtime.objects.locations import is_in_object_store
from drivetrain.runtime.usable_cores import usable_cores

_WORKERS_OWN: Final = ("cluster.", "worker.")
"""Topics of keys whose values come from the worker's machine, never from the application."""
STATES: Final = "states"
"""The folder of the worker's directory in which applications work whose state is in an object store."""
_FILES: Final = (cluster.SECRET_FILE, cluster.TLS_CERTIFICATE, cluster.TLS_KEY, cluster.TLS_AUTHORITY)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The keys of `config.catalog.worker`; `config` is the worker's whole configuration."""

    name: str
    slots: int
    host: str
    directory: Path
    spare_executors: int
    leader_timeout_ms: int
    drain_timeout_ms: int
    report_interval_ms: int
    code_timeout_ms: int
    code_retention_ms: int
    state_retention_ms: int
    log_size_bytes: int
    log_count: int
    log_retention_ms: int
    config: Config

    @classmethod
    def from_config(cls, config: Config) -> WorkerSettings:
        """Read the configuration; missing values come from the machine.

        Raises SecretWrittenOutError for a literal secret that would go into the launch files of processes.
        """
        refuse_literal_secrets(literal_secrets(None, config))
        return cls(
            name=config[keys.NAME] or socket.gethostname(),
            slots=config[keys.SLOTS] or usable_cores(),
            host=config[cluster.HOST],
            directory=Path(config[keys.DIRECTORY]).resolve(),
            spare_executors=config[keys.SPARE_EXECUTORS],
            leader_timeout_ms=config[keys.LEADER_TIMEOUT],
            drain_timeout_ms=config[keys.DRAIN_TIMEOUT],
            report_interval_ms=config[keys.REPORT_INTERVAL],
            code_timeout_ms=config[keys.CODE_TIMEOUT],
            code_retention_ms=config[keys.CODE_RETENTION],
            state_retention_ms=config[keys.STATE_RETENTION],
            log_size_bytes=config[keys.LOG_SIZE],
            log_count=config[keys.LOG_COUNT],
            log_retention_ms=config[keys.LOG_RETENTION],
            config=config,
        )


def config_for(worker: Config, application: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a launched process by key: the worker's, overridden by the application's.

    Tables (`spark.conf`) are merged entry by entry. Paths of the worker's files are made absolute, since its
    processes have other current directories. An application whose state is in an object store works below the
    worker's directory, unless either names a place for that: homes may be shared by machines.
    """
    merged = {
        setting.key.name: setting.key.parse.show(setting.value)
        for setting in worker
        if setting.place != "default" and not setting.key.name.startswith("worker.")
    }
    for key in _FILES:
        if worker[key]:
            merged[key.name] = str(Path(worker[key]).resolve())
    for name, value in application.items():
        if name.startswith(_WORKERS_OWN):
            continue
        key_of_name = find_key(name)
        if key_of_name is not None and key_of_name.is_table and name == key_of_name.name and name in merged:
            merged[name] = json.dumps({**json.loads(merged[name]), **json.loads(value)}, sort_keys=True)
        else:
            merged[name] = value
    if is_in_object_store(merged.get(run.STATE_DIR.name, "")):
        merged.setdefault(run.WORK_DIR.name, str(Path(worker[keys.DIRECTORY]).resolve() / STATES))
    return merged
