"""The simulated disk, alone and beside the real one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.actor.disk import DirectoryDisk, Disk
from drivetrain.errors import DiskFullError, OutputError
from drivetrain.simulator import DiskFaults, Node, Simulation

Operation = tuple[str, str, bytes]

operations = st.lists(
    st.tuples(
        st.sampled_from(["write", "append", "sync", "replace", "delete", "read"]),
        st.sampled_from(["a", "b"]),
        st.binary(max_size=6),
    ),
    max_size=25,
)


async def perform(disk: Disk, steps: list[Operation]) -> list[object]:
    seen: list[object] = []
    for what, name, data in steps:
        try:
            match what:
                case "write":
                    await disk.write(name, data)
                case "append":
                    await disk.append(name, data)
                case "sync":
                    await disk.sync(name)
                case "replace":
                    await disk.replace(name, "target")
                case "delete":
                    await disk.delete(name)
        except FileNotFoundError:
            seen.append("missing")
        seen.append([(each, await disk.read(each)) for each in await disk.names()])
    return seen


@settings(max_examples=40, deadline=None)
@given(operations)
def test_without_crashes_it_does_what_a_real_disk_does(steps: list[Operation]) -> None:
    simulation = Simulation(1)
    simulated = simulation.run(lambda simulation: perform(simulation.node("n").disk, steps))
    with TemporaryDirectory() as directory:
        disk = DirectoryDisk(Path(directory))
        real = asyncio.run(perform(disk, steps))
        disk.close()
    assert simulated == real


def after_crash(seed: int, write: list[Operation]) -> bytes | None:
    async def scenario(simulation: Simulation) -> bytes | None:
        node = simulation.node("n")
        await node.start(lambda node: perform(node.disk, write))
        node.crash()
        return node.disk.content("a")

    return Simulation(seed).run(scenario)


def test_what_was_synced_survives_every_crash() -> None:
    for seed in range(30):
        assert (
            after_crash(seed, [("write", "a", b"one"), ("append", "a", b"two"), ("sync", "a", b"")])
            == b"onetwo"
        )


def test_what_was_not_synced_survives_as_a_prefix_perhaps_torn() -> None:
    steps: list[Operation] = [("write", "a", b"base"), ("sync", "a", b"")]
    steps += [("append", "a", b"xy"), ("append", "a", b"z")]
    outcomes = {after_crash(seed, steps) for seed in range(100)}
    assert outcomes == {b"base", b"basex", b"basexy", b"basexyz"}


def test_an_unsynced_file_may_disappear() -> None:
    outcomes = {after_crash(seed, [("write", "a", b"x")]) for seed in range(60)}
    assert outcomes == {None, b"", b"x"}


def test_a_replacement_that_was_not_synced_may_be_empty_but_the_old_content_is_gone() -> None:
    async def scenario(simulation: Simulation) -> bytes | None:
        node = simulation.node("n")

        async def main(node: Node) -> None:
            await node.disk.write("target", b"old")
            await node.disk.sync("target")
            await node.disk.write("new", b"new")
            await node.disk.replace("new", "target")

        await node.start(main)
        node.crash()
        return node.disk.content("target")

    outcomes = {Simulation(seed).run(scenario) for seed in range(60)}
    assert b"old" not in outcomes
    assert {b"", b"new"} <= outcomes


def test_a_crash_in_the_middle_of_a_sync_finds_it_done_or_not() -> None:
    async def scenario(simulation: Simulation) -> bytes | None:
        node = simulation.node("n")
        node.start(lambda node: perform(node.disk, [("write", "a", b"x" * 20), ("sync", "a", b"")]))
        await simulation.sleep(simulation.random.uniform(0, 0.012))
        node.crash()
        return node.disk.content("a")

    outcomes = {Simulation(seed).run(scenario) for seed in range(100)}
    assert None in outcomes
    assert b"x" * 20 in outcomes


def test_a_full_disk_changes_nothing() -> None:
    async def scenario(simulation: Simulation) -> None:
        disk = simulation.node("n").disk
        disk.capacity_bytes = 5
        await disk.write("a", b"12345")
        with pytest.raises(DiskFullError):
            await disk.append("a", b"6")
        assert await disk.read("a") == b"12345"
        await disk.write("a", b"")
        await disk.append("a", b"6")

    Simulation(1).run(scenario)


def test_operations_fail_as_often_as_told_and_change_nothing() -> None:
    async def scenario(simulation: Simulation) -> None:
        disk = simulation.node("n").disk
        disk.set_faults(DiskFaults(failure=0.5))
        failures = 0
        for _ in range(100):
            before = disk.content("a")
            try:
                await disk.append("a", b"x")
            except OSError:
                failures += 1
                assert disk.content("a") == before
        assert 30 < failures < 70

    Simulation(1).run(scenario)


@pytest.mark.parametrize("name", ["../a", "a/b", "", ".hidden", "a\0b"])
def test_a_name_cannot_leave_the_directory(name: str, tmp_path: Path) -> None:
    disk = DirectoryDisk(tmp_path / "d")
    with pytest.raises(OutputError):
        asyncio.run(disk.write(name, b""))
    disk.close()
    with pytest.raises(OutputError):
        Simulation(1).run(lambda simulation: simulation.node("n").disk.write(name, b""))


def test_a_real_disk_without_room_says_so(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    disk = DirectoryDisk(tmp_path)
    with pytest.raises(DiskFullError, match="no space"):
        asyncio.run(disk.append("log", b"x"))
    disk.close()
