"""The launch file: everything that a worker passes to a process that it starts, except secrets.

A spare executor, which is started before it is known for what, gets a `SpareFile` and later a `Handover`.

Problem: an application master or an executor needs a page of values before it can do anything, and they must
remain readable when it fails.

Design: a JSON file in the process's own directory, readable by its owner only, whose path is the only
argument of the process. Secrets are not in it: the keys of the process come in the environment
(DRIVETRAIN_SECRET).

Invariants:
1. `load` returns what `save` wrote.
2. The file never holds a secret.

Written by the worker, read by `parent.wait_for_launch_file`, and so by every launched process, and by spare
executors.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Self

import msgspec

from drivetrain.cluster.access.system_names import app_master_name, executor_name
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.launching import ProcessKind
from drivetrain.config import Config
from drivetrain.errors import PeerViolationError, UnavailableError

SPARE: Final = "--spare"
"""The option of an executor's program whose value is the path of a `SpareFile`."""
LAUNCH_FILE: Final = "launch.json"
"""The name of a launch file in the process's own directory."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that a worker writes for one process."""

    def save(self, path: Path) -> None:
        """Write the file at `path`, readable by its owner only; raises OSError."""
        data = msgspec.json.format(msgspec.json.encode(self), indent=2)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file at `path`; raises UnavailableError, or PeerViolationError for another version's."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UnavailableError(
                "the launch file cannot be read",
                where=str(path),
                got=error.strerror,
                remedy="workers start this process; it is not meant to be started by hand",
            ) from error
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise PeerViolationError(
                "not a launch file of this version of Drivetrain",
                where=str(path),
                got=str(error),
                remedy="use one version of Drivetrain for the worker and its processes",
            ) from error


class SpareFile(_File, frozen=True):
    """What a spare executor starts Spark for: `config` and `slots` as in the launches that may get it."""

    slots: int
    work_directory: str
    config: dict[str, str] = {}


class Handover(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The line that gives a spare executor its launch: the path of the launch file, and its keys, if any."""

    launch_file: str
    secret: str | None = None


class LaunchFile(_File, frozen=True):
    """The role and the settings of a launched process.

    `owner` and `worker` are actor paths with their incarnation (`str(ref.path)`); `app_master` is the one
    that an executor registers with. `code_directory` holds the unpacked archive and must not be written to;
    `work_directory` is the process's own and current directory, deleted after its end. `masters` are
    HOST:PORT; `host` is the address that this process listens on and is reached at. `config` maps
    configuration keys to values as a user writes them: the worker's own, overridden by the application's.
    `submission` is that of `Launch`.
    """

    kind: ProcessKind
    launch_id: str
    app_id: str
    epoch: int
    spec: ApplicationSpec
    slots: int
    owner: str
    app_master: str | None
    code_directory: str
    work_directory: str
    worker_id: str
    worker_name: str
    worker: str
    masters: list[str]
    host: str
    config: dict[str, str] = {}
    submission: str = ""

    @property
    def system(self) -> str:
        """The name of the process's actor system; its keys prove it."""
        if self.kind is ProcessKind.APP_MASTER:
            return app_master_name(self.app_id, self.epoch)
        return executor_name(self.app_id, self.epoch, self.launch_id)

    def load_config(self) -> Config:
        """The configuration of the process; raises ConfigError."""
        return Config.load(None, None, self.config)
