"""Wall clocks that are set while workers run: nobody who was there before is sent away."""

from __future__ import annotations

from pathlib import Path

from master_cluster import Cluster
from master_world import PORT
from worker_sim import FakeLauncher, IdleMachine

from drivetrain.actor import Message
from drivetrain.cluster.messages.applications import GetWorkers, Workers
from drivetrain.cluster.worker import Worker, WorkerSettings
from drivetrain.config import Config
from drivetrain.errors import UnavailableError
from drivetrain.simulator import Node, Simulation, simulate

HOUR_MS = 3_600_000


class RealWorkers(Cluster):
    """Masters with real workers, which launch nothing."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, 3)
        self.launched: list[str] = []
        self.told: list[Message] = []
        self.ends: list[UnavailableError] = []

    async def begin_worker(self, name: str) -> Node:
        node = self.simulation.node(name)

        async def main(node: Node) -> None:
            system = await self.connect(node, "worker", PORT)
            settings = WorkerSettings(
                name=name,
                slots=4,
                host=name,
                directory=Path("/nowhere"),
                spare_executors=0,
                leader_timeout_ms=20_000,
                drain_timeout_ms=3_000,
                report_interval_ms=1_000,
                code_timeout_ms=1_000,
                code_retention_ms=1_000,
                state_retention_ms=1_000,
                log_size_bytes=1_000,
                log_count=2,
                log_retention_ms=1_000,
                config=Config(),
            )
            launcher = FakeLauncher(self, node)  # type: ignore[arg-type]
            places = tuple(self.addresses)
            system.spawn(
                lambda: Worker(settings, places, launcher, IdleMachine(), node.clock_ms, self.ends.append),
                "worker",
            )

        await node.start(main)
        return node

    async def names(self) -> list[str]:
        answer = await self.ask(GetWorkers())
        assert isinstance(answer, Workers)
        return [view.name for view in answer.workers]

    async def wait_workers(self, names: list[str]) -> None:
        for _ in range(200):
            if await self.names() == names:
                return
            await self.simulation.sleep(0.5)
        raise AssertionError(f"{await self.names()} in place of {names}")


@simulate(seeds=1, until_s=900)
async def test_a_step_of_the_leaders_clock_ends_no_worker_and_it_suspects_itself(
    simulation: Simulation,
) -> None:
    cluster = RealWorkers(simulation)
    await cluster.start()
    for name in ("w1", "w2", "w3"):
        await cluster.begin_worker(name)
    await cluster.wait_workers(["w1", "w2", "w3"])
    term, leader = cluster.term(), cluster.leader()
    assert leader is not None
    leader.step_clock(simulation.random.choice([-HOUR_MS, HOUR_MS]))
    await simulation.sleep(60)  # longer than the workers' patience
    assert await cluster.names() == ["w1", "w2", "w3"]
    await cluster.begin_worker("w4")  # its clock is as those of the others: not the one that is wrong
    await cluster.wait_workers(["w1", "w2", "w3", "w4"])
    assert (cluster.term(), cluster.ends) == (term, [])


@simulate(seeds=1, until_s=900)
async def test_a_step_of_a_workers_clock_is_no_reason_to_end_it_not_for_the_next_leader_either(
    simulation: Simulation,
) -> None:
    cluster = RealWorkers(simulation)
    await cluster.start()
    nodes = [await cluster.begin_worker(name) for name in ("w1", "w2", "w3")]
    await cluster.wait_workers(["w1", "w2", "w3"])
    nodes[0].step_clock(simulation.random.choice([-HOUR_MS, HOUR_MS]))
    await simulation.sleep(30)
    leader = cluster.leader()
    assert leader is not None
    leader.crash()
    await cluster.until(lambda: cluster.leader() not in (None, leader), "another leader")
    await cluster.wait_workers(["w1", "w2", "w3"])
    await simulation.sleep(30)
    assert await cluster.names() == ["w1", "w2", "w3"]
    assert cluster.ends == []
    # One that begins with a wrong clock is refused, and has to be corrected.
    simulation.node("w5").clock_skew_ms = HOUR_MS
    late = await cluster.begin_worker("w5")
    await simulation.sleep(5)
    assert await cluster.names() == ["w1", "w2", "w3"]
    late.step_clock(-HOUR_MS)
    await cluster.wait_workers(["w1", "w2", "w3", "w5"])
