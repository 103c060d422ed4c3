"""A leader and a worker in the test's process, that start real application masters and executors.

They answer according to the protocol, so that only one part is tested: the processes of an application.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from drivetrain.actor import Actor, ActorRef, ActorSystem, Failure, Message
from drivetrain.actor.remote import attach_remote
from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.messages.applications import ApplicationSpec, GetWorkers, Workers, WorkerView
from drivetrain.cluster.messages.following import JobStatus
from drivetrain.cluster.messages.launching import Launch, Launched, ProcessExited, ProcessKind, StopProcess
from drivetrain.cluster.messages.leadership import GetLeader, Leader
from drivetrain.cluster.messages.registration import (
    AppMasterRegistered,
    AppMasterReport,
    RegisterAppMaster,
    ReportAccepted,
)
from drivetrain.cluster.messages.resources import RequestSlots, SlotsAllocated

MODULES = {
    ProcessKind.APP_MASTER: "drivetrain.cluster.app_master",
    ProcessKind.EXECUTOR: "drivetrain.cluster.executor",
}


class Look(Message, frozen=True, tag="dt.local.custom-cluster.look"):
    pass


class Cluster:
    """One application on a cluster whose workers have the names `workers`."""

    def __init__(self, spec: ApplicationSpec, code: Path, directory: Path, workers: list[str]) -> None:
        self.spec, self.code, self.directory, self.names = spec, code, directory, workers
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.reports: list[AppMasterReport] = []
        self.refs: dict[str, ActorRef] = {}

    async def start(self) -> None:
        """Start the leader, the workers and the application master."""
        self.system = ActorSystem("master")
        await attach_remote(self.system)
        self.master = self.system.spawn(lambda: Master(self), "master")
        self.workers = ActorSystem("worker")
        await attach_remote(self.workers)
        for name in self.names:
            self.refs[name] = self.workers.spawn(lambda name=name: Worker(self, name), name)
        launch = Launch("am", ProcessKind.APP_MASTER, "app-1", 1, self.spec, 1, self.master)
        self.run(launch, self.names[0])

    def run(self, launch: Launch, worker: str) -> subprocess.Popen[bytes]:
        """Start a process as a worker does."""
        work = self.directory / launch.launch_id
        work.mkdir()
        address = self.system.address
        LaunchFile(
            launch.kind,
            launch.launch_id,
            launch.app_id,
            launch.epoch,
            launch.spec,
            launch.slots,
            str(launch.owner.path),
            launch.app_master,
            str(self.code),
            str(work),
            worker,
            worker,
            str(self.refs[worker].path),
            [f"{address.host}:{address.port}"],
            "127.0.0.1",
        ).save(work / "launch.json")
        with (work / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", MODULES[launch.kind], str(work / "launch.json")],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self.processes[launch.launch_id] = process
        return process

    def logs(self) -> str:
        """The output of the processes."""
        return "\n".join(f"--- {p.parent.name}\n{p.read_text()}" for p in self.directory.glob("*/log"))

    @property
    def final(self) -> AppMasterReport | None:
        """The report with the application's end; None before."""
        return next((r for r in self.reports if r.state.is_over), None)

    def result(self) -> JobStatus:
        """The final status."""
        assert self.final is not None, self.logs()
        assert self.final.result is not None
        return msgspec.msgpack.decode(self.final.result, type=JobStatus)

    async def wait_over(self) -> JobStatus:
        """Wait until every process has ended on its own; returns the final status."""
        async with asyncio.timeout(60):
            while any(p.poll() is None for p in self.processes.values()) or self.final is None:
                assert self.final is not None or self.processes["am"].poll() is None, self.logs()
                await asyncio.sleep(0.05)
        return self.result()

    async def close(self) -> None:
        """End all remaining processes."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        await self.system.terminate()
        await self.workers.terminate()

    def memory_mib(self, launch_id: str) -> float:
        """The resident memory of a process."""
        status = Path(f"/proc/{self.processes[launch_id].pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


class Master(Actor):
    """A master that leads."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def receive(self, message: Message) -> None:
        cluster = self.cluster
        match message:
            case GetLeader():
                address = cluster.system.address
                self.context.reply(Leader(1, f"{address.host}:{address.port}", self.context.me))
            case RegisterAppMaster():
                self.context.reply(AppMasterRegistered("app-1", 1, cluster.spec, None, 0))
            case AppMasterReport():
                cluster.reports.append(message)
                self.context.reply(ReportAccepted())
            case GetWorkers():
                views = [WorkerView(n, n, "127.0.0.1", 2, 2, 0) for n in cluster.names]
                self.context.reply(Workers(tuple(views)))
            case RequestSlots(request_id, requester=requester, worker=worker):
                name = worker or cluster.names[len(cluster.processes) % len(cluster.names)]
                given = SlotsAllocated(
                    request_id, f"{request_id}-x", name, name, "127.0.0.1", cluster.refs[name], 1
                )
                requester.tell(given)
            case _ if self.context.sender is not None:
                self.context.reply(Failure("unexpected", type(message).__name__))


class Worker(Actor):
    """A worker that starts processes."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.owners: dict[str, ActorRef] = {}

    def pre_start(self) -> None:
        self.context.timers.start_periodic("look", Look(), interval_ms=50)

    def receive(self, message: Message) -> None:
        processes = self.cluster.processes
        match message:
            case Launch(launch_id):
                if launch_id not in processes:
                    self.owners[launch_id] = message.owner
                    self.cluster.run(message, self.name)
                message.owner.tell(Launched(launch_id, self.name, processes[launch_id].pid))
            case StopProcess(launch_id):
                os.killpg(processes[launch_id].pid, 9)
            case Look():
                for launch_id, owner in list(self.owners.items()):
                    status = processes[launch_id].poll()
                    if status is not None:
                        del self.owners[launch_id]
                        owner.tell(ProcessExited(launch_id, ProcessKind.EXECUTOR, "app-1", status, ""))
