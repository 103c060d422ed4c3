"""A whole cluster on this machine: masters and workers as processes, their directories and logs.

Problem: trying out a cluster should not require choosing ports, directories and a list of masters; and
however it ends, no process may remain.

Design: each process runs the same command as on several machines, `drivetrain master` or `worker`, with its
own directory below a common one. The processes are tied to this one, see `cluster.parent`: workers and
masters end when it is killed. Their output goes to `<name>.log` next to their directories, see `local_log`.
While the cluster runs, `.drivetrain/cluster.toml` contains its masters and the path of its secret; the other
commands read it when their configuration names no masters.

Invariants:
1. All processes listen on loopback, and share a secret unless the configuration runs them without one.
2. When `close` has returned, no process of the cluster is left.

Called by `drivetrain local`.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from drivetrain.cli.arguments import LOCAL_CLUSTER_FILE
from drivetrain.cli.clusters.local_log import RotatedLog, follow_output
from drivetrain.cli.clusters.local_secret import make_secret, needs_secret
from drivetrain.cli.consoles.console import TOKEN_VARIABLE
from drivetrain.cli.consoles.console_port import HOST, free_port
from drivetrain.cluster.parent import PARENT_VARIABLE
from drivetrain.config import Config
from drivetrain.config.catalog import cluster, console, master, worker
from drivetrain.console.addresses import ConsoleAddress, address_of
from drivetrain.console.local_workers import DIRECTORY_VARIABLE
from drivetrain.durable import write_whole
from drivetrain.errors import UnavailableError, UserError
from drivetrain.private_files import make_private_directory
from drivetrain.runtime.usable_cores import usable_cores

_END_S: Final = 25.0
_DRAIN: Final = "5 s"
_LOG_S: Final = 5.0
_SHOWN_LINES: Final = 12


@dataclass(frozen=True)
class ClusterMember:
    """One process of the cluster; `place` is its address or its slots, for the table."""

    name: str
    kind: str
    place: str
    directory: Path
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)
    logging: threading.Thread = field(repr=False)

    def last_lines(self) -> str:
        """The end of its log; complete once the process has ended."""
        if self.process.poll() is not None:
            self.logging.join(_LOG_S)
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_SHOWN_LINES:])


class LocalCluster:
    """Starts `masters` masters from `port` on and `workers` workers of `slots` slots, below `directory`.

    `sets` and `config_file` configure all of them; `config` is the configuration of both.
    Raises UserError when a port is taken, UnavailableError when another local cluster uses the directory.
    """

    def __init__(
        self,
        masters: int,
        workers: int,
        *,
        slots: int,
        directory: Path,
        port: int,
        sets: Mapping[str, str],
        config_file: Path | None,
        config: Config,
    ) -> None:
        self.masters: Final = [f"{HOST}:{port + number}" for number in range(masters)]
        self.members: Final[list[ClusterMember]] = []
        self.secret_file: Path | None = None
        self._config: Final = config
        self._sets = {
            **sets,
            cluster.MASTERS.name: ",".join(self.masters),
            cluster.HOST.name: HOST,
            cluster.HEALTH_PORT.name: "0",  # they cannot all listen at one port
        }
        if config[worker.DRAIN_TIMEOUT] == worker.DRAIN_TIMEOUT.default_value:
            self._sets[worker.DRAIN_TIMEOUT.name] = _DRAIN  # there is no other machine to hand over to
        self._config_file: Final = config_file
        self.directory: Final = directory
        self._slots: Final = slots
        self._leaving: Final[dict[str, float]] = {}
        for number in range(masters):
            _require_free(port + number)
        try:
            make_private_directory(directory, "the directory of the cluster")
            if needs_secret(config):
                self.secret_file = make_secret(directory)
                self._sets[cluster.SECRET_FILE.name] = str(self.secret_file)
            for number in range(masters):
                own = {master.PORT.name: port + number}
                self._start(f"master-{number + 1}", "master", self.masters[number], own)
            for number in range(workers):
                self._start_worker(f"worker-{number + 1}")
            self._write_masters()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise UserError(
                    "the cluster cannot use its directory",
                    where=str(directory),
                    got=str(error),
                    remedy="make it and the current directory writable, or choose another with --directory",
                ) from error
            raise

    def start_console(self) -> ConsoleAddress:
        """Start a console of this cluster at its port, or at a free one when that is taken."""
        port = free_port(self._config[console.PORT])
        address, token = address_of(self._config, HOST, port), secrets.token_urlsafe(24)
        own = {
            console.HOST.name: HOST,
            console.PORT.name: port,
            console.DIRECTORY.name: self._config[console.DIRECTORY],  # where `console-access` has its file
        }
        own_environ = {TOKEN_VARIABLE: token, DIRECTORY_VARIABLE: str(self.directory.resolve())}
        self._start("console", "console", address, own, own_environ)
        return ConsoleAddress(address, token)

    def workers(self) -> tuple[str, ...]:
        """The names of the running workers, without those that were asked to end."""
        members = [
            member for member in self.members if member.kind == "worker" and member.name not in self._leaving
        ]
        return tuple(member.name for member in members if member.process.poll() is None)

    def add_worker(self) -> ClusterMember:
        """Start another worker; it gets the lowest free number, and the directory of that number."""
        taken = {member.name for member in self.members if member.process.poll() is None}
        number = next(number for number in itertools.count(1) if f"worker-{number}" not in taken)
        self._forget(f"worker-{number}")
        self._start_worker(f"worker-{number}")
        return self.members[-1]

    def remove_worker(self, name: str) -> ClusterMember:
        """Stop a running worker: it hands over its processes; those that do not end in time are killed."""
        member = next(member for member in self.members if member.name == name)
        self._leaving[name] = time.monotonic() + self._end_s
        member.process.terminate()
        return member

    def ended(self, known: set[int]) -> list[ClusterMember]:
        """The members whose processes have ended; not the `known` process ids, nor those that were asked to
        end."""
        for name, end_s in list(self._leaving.items()):
            member = next(member for member in self.members if member.name == name)
            if member.process.poll() is not None:
                self._forget(name)
            elif time.monotonic() >= end_s:
                member.process.kill()
        return [
            member
            for member in self.members
            if member.process.pid not in known and member.process.poll() is not None
        ]

    def close(self) -> None:
        """End all processes: workers first, as they have to end the processes that they launched."""
        if self._is_written():
            LOCAL_CLUSTER_FILE.unlink()
        for kind in ("console", "worker", "master"):
            self._end([member for member in self.members if member.kind == kind])
        for member in self.members:
            member.logging.join(_LOG_S)

    def _start_worker(self, name: str) -> None:
        own = {worker.NAME.name: name, worker.SLOTS.name: self._slots}
        self._start(name, "worker", f"{self._slots or usable_cores()} slots", own)

    def _forget(self, name: str) -> None:
        self._leaving.pop(name, None)
        self.members[:] = [member for member in self.members if member.name != name]

    @property
    def _end_s(self) -> float:
        return _END_S + self._config[worker.DRAIN_TIMEOUT] / 1000

    def _start(
        self,
        name: str,
        kind: str,
        place: str,
        own: Mapping[str, object],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        directory = (self.directory / name).resolve()
        sets = {**self._sets, f"{kind}.directory": directory, **own}
        arguments = [sys.executable, "-m", "drivetrain.cli", kind]
        if self._config_file is not None:
            arguments += ["--config", str(self._config_file)]
        for key, value in sets.items():
            arguments += ["--set", f"{key}={value}"]
        log_file = self.directory / f"{name}.log"
        rotated = RotatedLog(log_file, self._config[worker.LOG_SIZE], self._config[worker.LOG_COUNT])
        process = subprocess.Popen(
            arguments,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(environ or {}), PARENT_VARIABLE: str(os.getpid())},
        )
        assert process.stdout is not None
        logging = follow_output(process.stdout, rotated, name)
        self.members.append(ClusterMember(name, kind, place, directory, log_file, process, logging))

    def _end(self, members: Sequence[ClusterMember]) -> None:
        for member in members:
            if member.process.poll() is None:
                member.process.terminate()
        end_s = time.monotonic() + self._end_s
        for member in members:
            try:
                member.process.wait(max(0.1, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()  # its guard ends the processes that it launched
                member.process.wait()

    def _write_masters(self) -> None:
        make_private_directory(LOCAL_CLUSTER_FILE.parent, "what names the local cluster")
        lines = ["# written by `drivetrain local`, removed at its end"]
        lines.append(f'cluster.masters = "{",".join(self.masters)}"')
        if self.secret_file is not None:
            lines.append(f"cluster.secret-file = {json.dumps(str(self.secret_file), ensure_ascii=False)}")
        # As a whole: other commands may read it at any time, and another cluster may write it now.
        write_whole(LOCAL_CLUSTER_FILE, "\n".join([*lines, ""]).encode(), synced=False, is_shared=True)

    def _is_written(self) -> bool:
        return LOCAL_CLUSTER_FILE.is_file() and ",".join(self.masters) in LOCAL_CLUSTER_FILE.read_text(
            encoding="utf-8"
        )


def require_alive(member: ClusterMember) -> None:
    """Raise UnavailableError with the end of the member's log when its process has ended."""
    status = member.process.poll()
    if status is not None:
        raise UnavailableError(
            f"{member.name} ended while the cluster started",
            where=str(member.log),
            got=f"exit code {status}; its log ends with\n{member.last_lines()}",
            remedy="correct the cause shown in the log, and start again",
        )


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise UserError(
                "a master of the cluster cannot have its port",
                where=f"{HOST}:{port}",
                got=str(error),
                remedy="end the cluster that runs there, or choose another with --port",
            ) from error
