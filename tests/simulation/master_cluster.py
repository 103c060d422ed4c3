"""A small cluster of real masters, and a client, for scenarios that determine every event."""

from __future__ import annotations

import contextlib
import dataclasses

from master_world import PORT, World

from drivetrain.actor import ActorFailedError, ActorRef, Message
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.messages.applications import (
    Accepted,
    Applications,
    ApplicationSpec,
    ApplicationSummary,
    ApplicationView,
    FoundApplication,
    GetApplication,
    GetApplications,
    Submit,
)
from drivetrain.cluster.messages.code import CodeChunk, CodeStored, GetCode, PutCode
from drivetrain.errors import UnavailableError
from drivetrain.simulator import Node, Simulation

PIECE = 1_000


class Cluster(World):
    """Masters, perhaps workers, and a client: `ask` sends a request to the leader, repeatedly until it
    answers."""

    def __init__(self, simulation: Simulation, masters: int, workers: int = 0, **settings: int) -> None:
        super().__init__(simulation, masters)
        self.changed_settings = settings
        self.workers = [simulation.node(f"w{n}") for n in range(workers)]
        self.asker = simulation.node("c0")

    def settings(self, node: Node) -> MasterSettings:
        changed = {"code_grace_ms": 2_000} | self.changed_settings
        return dataclasses.replace(super().settings(node), **changed)  # type: ignore[arg-type]

    async def start(self) -> None:
        for node in self.masters:
            await self.start_master(node)
        for node in self.workers:
            await self.start_worker(node)

        async def main(node: Node) -> None:
            self.system = await self.connect(node, "client", PORT)

        await self.asker.start(main)
        await self.until(lambda: self.leader() is not None, "a leader")

    async def ask(self, message: Message, tries: int = 20) -> Message:
        for _ in range(tries):
            answer = await self.asker.run(lambda: self.ask_leader(self.system, message))
            if answer is not None:
                return answer
            await self.simulation.sleep(0.2)
        raise AssertionError(f"no answer to {message}: {dict(self.records.outcomes)}")

    async def refused(self, message: Message) -> str:
        """The code of the failure that the leader answers with."""
        before = dict(self.records.outcomes)
        assert await self.asker.run(lambda: self.ask_leader(self.system, message)) is None
        (code,) = {c for c, n in self.records.outcomes.items() if n > before.get(c, 0)}
        return code

    async def master(self, node: Node) -> ActorRef:
        path = f"drivetrain://master@{node.name}:{PORT}/user/master"
        for _ in range(20):
            with contextlib.suppress(UnavailableError):  # one that was just started may not listen yet
                return await self.asker.run(lambda: self.system.lookup(path, timeout_ms=2_000))
            await self.simulation.sleep(0.2)
        raise AssertionError(f"{node.name} cannot be found")

    async def ask_one(self, node: Node, message: Message, timeout_ms: int = 2_000) -> Message:
        master = await self.master(node)
        return await self.asker.run(lambda: master.ask(message, timeout_ms=timeout_ms))

    async def view(self, app: str) -> ApplicationView:
        answer = await self.ask(GetApplication(app))
        assert isinstance(answer, FoundApplication)
        return answer.application

    async def lines(self) -> list[ApplicationSummary]:
        """All applications, page by page."""
        found: list[ApplicationSummary] = []
        before: int | None = None
        while True:
            page = await self.ask(GetApplications(before))
            assert isinstance(page, Applications)
            found += page.applications
            if page.before is None:
                return found
            before = page.before

    def term(self) -> int:
        """The term of the current leader."""
        leader = self.leader()
        assert leader is not None
        return self.standings[leader.name].election.term

    async def submit(
        self, name: str = "wc", code: str = "", *, fresh: bool = False, config: dict[str, str] | None = None
    ) -> str:
        spec = ApplicationSpec(name, code, "app.py", config=config or {}, fresh=fresh)
        answer = await self.ask(Submit(f"s-{name}", spec))
        assert isinstance(answer, Accepted)
        return answer.app_id

    async def wait_active(self, app_id: str, epoch: int) -> None:
        def is_active() -> bool:
            return [each.launch.epoch for each in self.active(app_id)] == [epoch]

        await self.until(is_active, f"{app_id} runs in epoch {epoch} only")

    # ---- code

    async def put(self, data: bytes, sha256: str, pieces: int | None = None) -> CodeStored:
        """Send an archive, or only its first `pieces` pieces."""
        offset, sent = 0, 0
        stored = CodeStored(sha256, 0, False)
        while pieces is None or sent < pieces:
            answer = await self.ask(PutCode(sha256, offset, len(data), data[offset : offset + PIECE]))
            assert isinstance(answer, CodeStored)
            stored, offset, sent = answer, answer.stored_bytes, sent + 1
            if stored.complete:
                break
        return stored

    async def read(self, node: Node, sha256: str) -> bytes | None:
        """The archive as one master has it, None when it does not."""
        data = b""
        while True:
            try:
                chunk = await self.ask_one(node, GetCode(sha256, len(data)))
            except ActorFailedError as error:
                if error.failure_code == "no-code":
                    return None
                raise
            assert isinstance(chunk, CodeChunk)
            data += chunk.data
            if len(data) == chunk.size_bytes:
                return data

    def holders(self, sha256: str) -> list[str]:
        """The masters with a manifest of that archive on their disk."""
        return [node.name for node in self.masters if node.disk.content(f"code-{sha256}") is not None]
