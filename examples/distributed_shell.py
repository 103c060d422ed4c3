"""Runs a command on every worker of a cluster, and prints what each says: an application type of its own.

    drivetrain submit examples/distributed_shell.py --set command="uname -a" --attached

`Shell` is the application master: it asks the leader for an executor on each worker, tells each the command,
and ends with the outputs. `ShellExecutor` is what runs there. Both are actors; no Spark is involved.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

import msgspec

from drivetrain.actor import Message
from drivetrain.cluster.app_master import ApplicationMaster, AskOutcome, CustomExecutor, Member
from drivetrain.cluster.messages.applications import ApplicationState, GetWorkers, Workers
from drivetrain.cluster.messages.following import ErrorView, JobState, JobStatus
from drivetrain.cluster.messages.registration import AppMasterRegistered

MOST_BYTES = 64 * 1024


class Run(Message, frozen=True, tag="shell.run"):
    command: str
    timeout_s: float


class Output(Message, frozen=True, tag="shell.output"):
    worker: str
    status: int
    text: str


class ShellExecutor(CustomExecutor):
    """Runs one command after the other."""

    async def received(self, message: Message) -> None:
        if not isinstance(message, Run):
            self.context.unhandled(message)
            return
        process = await asyncio.create_subprocess_shell(
            message.command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            data, _ = await asyncio.wait_for(process.communicate(), message.timeout_s)
        except TimeoutError:
            process.kill()
            data, _ = await process.communicate()
        text = data[:MOST_BYTES].decode(errors="replace")
        self.context.reply(Output(self.setup.worker_name, process.returncode or 0, text))


class Shell(ApplicationMaster):
    """One executor per worker; finished when each has answered, failed when a command has."""

    executor = ShellExecutor
    settings: ClassVar[dict[str, str]] = {"command": "hostname", "timeout": "60"}

    def started(self, registered: AppMasterRegistered) -> None:
        self.outputs: dict[str, Output] = {}
        self.workers: list[str] | None = None
        self.look_for_workers()

    def look_for_workers(self) -> None:
        if self.link.leader is None:
            self.wake("workers", 0, 500)
        else:
            self.ask("workers", 0, self.link.leader, GetWorkers(), 5_000)

    def woken(self, what: str, number: int) -> None:
        if self.workers is None:
            self.look_for_workers()

    def answered(self, answer: AskOutcome) -> None:
        match answer.answer:
            case Workers(workers) if workers and self.workers is None:
                self.workers = sorted(worker.name for worker in workers)
                for name in self.workers:
                    self.want_executor(name)
            case Output() as output:
                self.outputs[output.worker] = output
                self.changed()
                self.finish()
            case _ if self.workers is None:
                self.wake("workers", 0, 500)
            case _:
                self.stop_executor(answer.what, answer.why)  # its successor runs the command again

    def executor_joined(self, member: Member) -> None:
        timeout_s = float(self.setting("timeout"))
        message = Run(self.setting("command"), timeout_s)
        assert member.executor is not None
        self.ask(member.id, 1, member.executor, message, int(timeout_s * 1000) + 10_000)

    def no_executor(self, place: str | None, error: ErrorView, retryable: bool) -> None:
        self.end(ApplicationState.FAILED, error)

    def finish(self) -> None:
        if self.workers is None or set(self.outputs) != set(self.workers):
            return
        wrong = [output for output in self.outputs.values() if output.status != 0]
        if not wrong:
            self.end(ApplicationState.SUCCEEDED)
            return
        where = ", ".join(sorted(output.worker for output in wrong))
        what = f"the command ended with status {wrong[0].status}: {wrong[0].text.strip()[-500:]}"
        self.end(ApplicationState.FAILED, ErrorView("command", what, where, remedy="correct the command"))

    def status(self) -> JobStatus:
        outputs = sorted(getattr(self, "outputs", {}).values(), key=lambda output: output.worker)
        told = "".join(f"{o.worker}: {line}\n" for o in outputs for line in o.text.splitlines())
        return msgspec.structs.replace(self.base_status(JobState.RUNNING), printed=told)
