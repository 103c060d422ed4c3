"""`drivetrain local`: a whole cluster on this machine, until Ctrl-C.

Called by `cli.main`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from drivetrain.cli.arguments import (
    LOCAL_CLUSTER_FILE,
    ConfigOption,
    JsonOption,
    SetOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.cluster_access import quiet_actors
from drivetrain.cli.clusters.local_cluster import ClusterMember, LocalCluster, require_alive
from drivetrain.cli.clusters.local_control import LocalControl
from drivetrain.cli.consoles.console_port import HOST, listens
from drivetrain.config import Config, split_sets
from drivetrain.config.catalog import cluster as cluster_keys
from drivetrain.console.addresses import ConsoleAddress
from drivetrain.errors import MissingDependencyError, UnavailableError
from drivetrain.terminal import Console, Table, print_line

DEFAULT_DIRECTORY: Final = ".drivetrain/local"
_READY_S: Final = 60.0
_POLL_S: Final = 0.2
_STEP_MS: Final = 1_000


def local_command(
    masters: Annotated[int, typer.Option("--masters", min=1, max=9, help="Number of masters.")] = 1,
    workers: Annotated[int, typer.Option("--workers", min=0, max=64, help="Number of workers.")] = 1,
    slots: Annotated[
        int, typer.Option("--slots", min=0, help="Slots of each worker; 0 means one per core.")
    ] = 0,
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="Directory for the files of its processes.")
    ] = Path(DEFAULT_DIRECTORY),
    port: Annotated[
        int,
        typer.Option(
            "--port", min=1, max=65_535, help="Port of the first master; the others use the next ports."
        ),
    ] = 7070,
    with_console: Annotated[
        bool | None,
        typer.Option("--console/--no-console", help="Run a console as well; by default if it is installed."),
    ] = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a whole cluster on this machine: masters, workers, a console, each a process, until Ctrl-C."""
    with_console = _wants_console(with_console)
    given = dict(parse_sets(sets))
    split_sets(given, ())
    local_sets = {**given, cluster_keys.HOST.name: HOST}
    # Before any process starts: an error ends the command.
    config = load_config(config_file, local_sets, finds_local=False)
    stop = _Stop()
    cluster = LocalCluster(
        masters,
        workers,
        slots=slots,
        directory=directory,
        port=port,
        sets=given,
        config_file=config_file,
        config=config,
    )
    try:
        if cluster.secret_file is not None:
            local_sets[cluster_keys.SECRET_FILE.name] = str(cluster.secret_file)
            config = load_config(config_file, local_sets, finds_local=False)
        # It asks nothing of the cluster before it listens: it can start while the masters elect a leader.
        console = cluster.start_console() if with_console and not stop.requested else None
        with quiet_actors():
            asyncio.run(_wait_ready(cluster, config, workers, stop))
        if console is not None:
            _wait_console(cluster.members[-1], console, stop)
        if not stop.requested:
            _show(cluster, console, as_json)
        with contextlib.closing(LocalControl(cluster)) as control:
            _wait_stopped(cluster, control, stop)
    finally:
        cluster.close()
    print_line("the cluster has ended", file=sys.stderr)


def _wants_console(asked: bool | None) -> bool:
    """Whether to run a console; raises MissingDependencyError if one was asked for that cannot run."""
    from drivetrain.console.requirements import require_packages

    if asked is False:
        return False
    try:
        require_packages()
    except MissingDependencyError as error:
        if asked:
            raise
        print_line(f"without a console: {error.remedy}", file=sys.stderr)
        return False
    return True


def _wait_console(member: ClusterMember, console: ConsoleAddress, stop: _Stop) -> None:
    """Wait until the console listens; raises UnavailableError."""
    end_s = time.monotonic() + _READY_S
    while not stop.requested and not listens(console):
        require_alive(member)
        if time.monotonic() >= end_s:
            raise UnavailableError(
                f"the console is not ready within {_READY_S:.0f} s",
                remedy=f"see its log, {member.log}, or give --no-console",
            )
        time.sleep(_POLL_S)


class _Stop:
    """Records the first SIGINT or SIGTERM; later ones, while everything ends, change nothing."""

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self._request())

    def _request(self) -> None:
        self.requested = True


async def _wait_ready(cluster: LocalCluster, config: Config, workers: int, stop: _Stop) -> None:
    """Wait until a master leads and all workers are registered; raises UnavailableError."""
    from drivetrain.actor import ActorSystem, AskError
    from drivetrain.actor.remote import attach_remote
    from drivetrain.cluster.connection import remote_settings
    from drivetrain.cluster.leader import find_leader
    from drivetrain.cluster.messages.applications import GetWorkers, Workers

    system = ActorSystem("client")
    end_s = time.monotonic() + _READY_S
    got = "no master leads"
    try:
        await attach_remote(system, remote_settings(config))
        while time.monotonic() < end_s and not stop.requested:
            for member in cluster.members:
                require_alive(member)
            try:
                leader = await find_leader(system, cluster.masters, _STEP_MS)
                assert leader.master is not None
                there = await leader.master.ask(GetWorkers(), Workers, timeout_ms=_STEP_MS)
            except (UnavailableError, AskError):
                continue
            if len(there.workers) >= workers:
                return
            got = f"{len(there.workers)} of {workers} workers are registered"
            await asyncio.sleep(_POLL_S)
    finally:
        await system.terminate()
    if not stop.requested:
        raise UnavailableError(
            f"the cluster is not ready within {_READY_S:.0f} s",
            got=got,
            remedy=f"see the logs in {cluster.members[0].log.parent}",
        )


def _wait_stopped(cluster: LocalCluster, control: LocalControl, stop: _Stop) -> None:
    reported: set[int] = set()
    while not stop.requested and _runs(cluster):
        control.work()
        for member in cluster.ended(reported):
            reported.add(member.process.pid)
            print_line(
                f"{member.name} has ended (exit code {member.process.returncode}) and is not started again; "
                f"its log is {member.log}",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(_POLL_S)


def _runs(cluster: LocalCluster) -> bool:
    return any(member.kind != "console" and member.process.poll() is None for member in cluster.members)


def _show(cluster: LocalCluster, console: ConsoleAddress | None, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "name": member.name,
                "kind": member.kind,
                "pid": member.process.pid,
                "place": member.place,
                "directory": str(member.directory),
                "log": str(member.log),
            }
            for member in cluster.members
        ]
        secret_file = None if cluster.secret_file is None else str(cluster.secret_file)
        shown = None if console is None else console.as_data
        data = {"masters": cluster.masters, "secret_file": secret_file, "console": shown, "processes": rows}
        print_line(json.dumps(data), flush=True)
        return
    out = Console()
    table = Table()
    for heading in ("process", "pid", "offers", "log"):
        table.add_column(heading, no_wrap=heading != "log", overflow="fold")
    for member in cluster.members:
        table.add_row(member.name, str(member.process.pid), member.place, str(member.log))
    out.print(table)
    if console is not None:
        out.print(f"console        {console.entry}", soft_wrap=True)
    out.print("submit with    drivetrain submit FILE", soft_wrap=True)
    out.print(f"elsewhere add  --config {LOCAL_CLUSTER_FILE.resolve()}", soft_wrap=True)
    out.print("Ctrl-C ends the cluster; the next start continues its applications")
    sys.stdout.flush()
