"""A real worker process with a scripted leader: what it launches lives, ends, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
from worker_world import World, kill

from drivetrain.actor import ActorFailedError
from drivetrain.cluster.messages.launching import (
    Launched,
    LaunchFailed,
    LogChunk,
    ProcessExited,
    ProcessKind,
    ReadLog,
    StopProcess,
)
from drivetrain.cluster.messages.registration import (
    RegisterAppMaster,
    RegisterWorker,
    WorkerRefused,
    WorkerReport,
)

MIB = 2**20

SLEEPS = """
print("begun", launch.app_id, launch.epoch, flush=True)
time.sleep(1000)
"""
# Finishes something after SIGTERM: waits for the file `finish` in the directory that it is told.
FINISHES = """
import signal
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
print("begun", flush=True)
while not (asked and os.path.exists(GATE)):
    time.sleep(0.05)
"""
# A child of a child, in a session of its own, with its output closed: whatever is left without care.
LEAVES_OTHERS = """
subprocess.Popen(["sleep", "1001"])
subprocess.Popen(["sleep", "1002"], start_new_session=True)
subprocess.Popen([sys.executable, "-c", "import os, time\\nif os.fork(): os._exit(0)\\nos.setsid()\\n"
                  "if os.fork(): os._exit(0)\\nos.close(1); os.close(2); time.sleep(1003)"])
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("begun", flush=True)
time.sleep(1000)
"""


def run(tmp_path: Path, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World(tmp_path)
        await world.open()
        try:
            await scenario(world)
        finally:
            await world.close()

    asyncio.run(main())


def sleepers(pids: set[int]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        is_ours = line[-1:] in (["1001"], ["1002"]) or "sleep(1003)" in " ".join(line)
        if is_ours and process.pid not in pids:
            found.append(process)
    return found


async def begun(world: World, worker: object, app_id: str = "app-1") -> Launched:
    """Wait until the launched program has said that it runs."""
    launched = await world.told(Launched)

    def has_begun() -> bool:
        folder = world.tmp_path / "worker" / "logs" / app_id
        newest = max(folder.glob("*.log"), key=lambda path: path.name, default=None)
        return newest is not None and b"begun" in newest.read_bytes()

    await world.until(has_begun, "the program begins")
    return launched


@pytest.mark.nightly("test_worker_registration; other tests of this module launch and end processes")
def test_a_process_is_launched_with_its_code_and_its_end_is_told_with_its_output(tmp_path: Path) -> None:
    text = (
        "sys.path.insert(0, launch.code_directory)\nimport app\n"
        "print(app.name, launch.slots, launch.owner, os.getcwd() == launch.work_directory, flush=True)\n"
        "sys.exit(7)\n"
    )

    async def scenario(world: World) -> None:
        process = world.start_worker(world.program("says", text))
        worker = await world.registered()
        launch = world.launch()
        worker.tell(launch, world.me)
        launched = await world.told(Launched)
        exited = await world.told(ProcessExited)
        assert (launched.launch_id, exited.launch_id) == (launch.launch_id, launch.launch_id)
        assert (exited.status, exited.kind, exited.app_id) == (7, ProcessKind.APP_MASTER, "app-1")
        assert exited.log == f"app 1 {world.me.path} True\n"
        assert psutil.Process(process.pid).memory_info().rss < 80 * MIB

        worker.tell(launch, world.me)  # the same launch again: the same answer, and no second process
        again = await world.told(ProcessExited, 2)
        assert again == exited
        assert len(world.of(Launched)) == 1
        assert not list((tmp_path / "worker" / "work").iterdir())
        assert not list((tmp_path / "worker" / "launches").iterdir())

    run(tmp_path, scenario)


@pytest.mark.nightly("test_worker_registration; other tests of this module launch and end processes")
def test_the_real_application_master_is_launched_registers_and_is_stopped(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.start_worker("-mdrivetrain.cluster.app_master")
        worker = await world.registered()
        worker.tell(world.launch(epoch=3, slots=0), world.me)
        launched = await world.told(Launched)
        assert "drivetrain.cluster.app_master" in " ".join(psutil.Process(launched.pid).cmdline())
        registering = await world.told(RegisterAppMaster)
        assert (registering.app_id, registering.epoch) == ("app-1", 3)
        assert psutil.Process(launched.pid).memory_info().rss < 80 * MIB
        worker.tell(StopProcess(launched.launch_id, 2_000), world.me)
        assert (await world.told(ProcessExited)).status == 0  # it hands over
        assert not psutil.pid_exists(launched.pid)

    run(tmp_path, scenario)


def test_the_death_of_a_child_is_told_and_its_slots_are_free(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.start_worker(world.program("sleeps", SLEEPS))
        worker = await world.registered()
        worker.tell(world.launch(slots=4), world.me)
        launched = await begun(world, worker)
        await world.until(lambda: world.held == ("launch-1",), "the slots are reported as held")

        worker.tell(world.launch(slots=1, app_id="app-2"), world.me)
        assert (await world.told(LaunchFailed)).code == "no-slots"

        kill(launched.pid)
        exited = await world.told(ProcessExited)
        assert (exited.status, exited.log) == (-signal.SIGKILL, "begun app-1 1\n")
        await world.until(lambda: world.held == (), "the slots are free")

    run(tmp_path, scenario)


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_stopping_a_process_ends_its_descendants_wherever_they_went(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        before = {process.pid for process in sleepers(set())}
        world.start_worker(world.program("leaves", LEAVES_OTHERS))
        worker = await world.registered()
        worker.tell(world.launch(), world.me)
        launched = await begun(world, worker)
        await world.until(lambda: len(sleepers(before)) == 3, "its children run")

        worker.tell(StopProcess(launched.launch_id, 300), world.me)
        exited = await world.told(ProcessExited)
        assert exited.status == -signal.SIGKILL  # it ignores the request to end
        assert sleepers(before) == []

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly("the harder signal"))]
)
def test_the_end_of_a_worker_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    async def scenario(world: World) -> None:
        before = {process.pid for process in sleepers(set())}
        process = world.start_worker(world.program("leaves", LEAVES_OTHERS))
        worker = await world.registered()
        worker.tell(world.launch(), world.me)
        launched = await begun(world, worker)
        await world.until(lambda: len(sleepers(before)) == 3, "its children run")

        os.kill(process.pid, number)
        process.wait()
        await world.until(lambda: not psutil.pid_exists(launched.pid), "what it launched has ended")
        await world.until(lambda: sleepers(before) == [], "what that had started has ended")
        await world.until(lambda: world.left() == [], "nothing is left, the guard included")

    run(tmp_path, scenario)


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_worker_cleans_up_what_a_dead_one_left_and_kills_nobody_else(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        # Its guard dies with it, and the process does not care for its parent: only the next worker is left.
        text = (
            "subprocess.Popen(['sleep', '1002'], start_new_session=True)\n"
            "print('begun', flush=True)\ntime.sleep(1000)"
        )
        before = {process.pid for process in sleepers(set())}
        process = world.start_worker(world.program("leaves", text))
        worker = await world.registered()
        worker.tell(world.launch(), world.me)
        await begun(world, worker)
        await world.until(lambda: len(sleepers(before)) == 1, "its child runs")
        guards = [
            child for child in psutil.Process(process.pid).children() if "orphans" in str(child.cmdline())
        ]
        assert len(guards) == 1
        kill(guards[0].pid)
        kill(process)
        process.wait()
        assert len(sleepers(before)) == 1  # there is something to clean up

        # A record of a process id that somebody else has by now.
        record = tmp_path / "worker" / "launches" / "other.json"
        told = {"launch_id": "other", "tag": "x/other", "work_directory": str(tmp_path / "nothing")}
        record.write_text(json.dumps({**told, "pid": os.getpid(), "started_ticks": 1}))
        (tmp_path / "worker" / "work" / "launch-no-further").mkdir()
        world.leader.worker = None
        world.start_worker(world.program("sleeps", SLEEPS))
        await world.registered()
        assert sleepers(before) == []
        assert not list((tmp_path / "worker" / "launches").iterdir())
        assert not list((tmp_path / "worker" / "work").iterdir())

    run(tmp_path, scenario)


def test_two_workers_cannot_share_a_directory(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.start_worker(world.program("sleeps", SLEEPS))
        await world.registered()
        second = world.start_worker(world.program("sleeps", SLEEPS), worker__name="other")
        await world.until(lambda: second.poll() is not None, "the second worker ends")
        assert second.returncode == 4
        assert "worker.directory" in (tmp_path / "worker.log").read_text()

    run(tmp_path, scenario)


@pytest.mark.nightly("test_worker_registration")
def test_a_lower_epoch_is_refused_and_killed(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.start_worker(world.program("sleeps", SLEEPS))
        worker = await world.registered()
        worker.tell(world.launch(epoch=2), world.me)
        await begun(world, worker)
        worker.tell(world.launch(epoch=1), world.me)
        assert (await world.told(LaunchFailed)).code == "stale-epoch"
        worker.tell(world.launch(epoch=3), world.me)
        exited = await world.told(ProcessExited)
        assert (exited.launch_id, exited.status) == ("launch-1", -signal.SIGKILL)
        assert (await world.told(Launched, 2)).launch_id == "launch-3"

    run(tmp_path, scenario)


def test_executors_of_a_killed_application_master_are_killed_with_their_children(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        before = {process.pid for process in sleepers(set())}
        world.start_worker(world.program("leaves", LEAVES_OTHERS))
        worker = await world.registered()
        worker.tell(world.launch(), world.me)
        app_master = await begun(world, worker)
        worker.tell(world.launch(ProcessKind.EXECUTOR), world.me)
        executor = await world.told(Launched, 2)
        await world.until(lambda: len(sleepers(before)) == 6, "both have children")
        kill(app_master.pid)
        await world.told(ProcessExited, 2)
        ended = {(exited.kind, exited.status) for exited in world.of(ProcessExited)}
        assert ended == {
            (ProcessKind.APP_MASTER, -signal.SIGKILL),
            (ProcessKind.EXECUTOR, -signal.SIGKILL),
        }
        assert not psutil.pid_exists(executor.pid)
        assert sleepers(before) == []

    run(tmp_path, scenario)


def test_missing_code_fails_the_launch(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.start_worker(world.program("sleeps", SLEEPS))
        worker = await world.registered()
        launch = world.launch()
        spec = type(launch.spec)("app", "0" * 64, "app.py")
        worker.tell(world.launch(spec=spec), world.me)
        failed = await world.told(LaunchFailed)
        assert failed.code == "no-code"
        assert failed.remedy
        await world.until(lambda: world.held == (), "the slots are free")

    run(tmp_path, scenario)


@pytest.mark.nightly("the unit tests of logs")
def test_a_chatty_process_does_not_fill_the_disk_and_its_log_can_be_read(tmp_path: Path) -> None:
    text = (
        "for number in range(20000): print(f'line {number:06d}')\n"
        "print('begun', flush=True)\ntime.sleep(1000)"
    )

    async def scenario(world: World) -> None:
        sets = {"worker__log_size": "8 KiB", "worker__log_count": 3}
        world.start_worker(world.program("chatters", text), **sets)
        worker = await world.registered()
        worker.tell(world.launch(), world.me)
        await begun(world, worker)
        files = list((tmp_path / "worker" / "logs" / "app-1").iterdir())
        assert len(files) == 3
        assert sum(path.stat().st_size for path in files) <= 3 * (8 + 64) * 1024

        end = await worker.ask(ReadLog("app-1"), LogChunk)
        assert end.process == "app-master-1"
        assert end.data.endswith(b"line 019999\nbegun\n")
        assert end.next_offset == 20_000 * len("line 000000\n") + len("begun\n")
        early = await worker.ask(ReadLog("app-1", "app-master-1", 0, 100), LogChunk)
        assert len(early.data) == 100
        assert early.next_offset > 100  # what came before was deleted
        with pytest.raises(ActorFailedError) as raised:
            await worker.ask(ReadLog("../../etc", "passwd"), LogChunk)
        assert raised.value.failure_code == "no-log"

    run(tmp_path, scenario)


def test_a_worker_without_a_leader_ends_with_all_it_launched(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        process = world.start_worker(world.program("sleeps", SLEEPS), worker__leader_timeout="2 s")
        worker = await world.registered()
        worker.tell(world.launch(), world.me)
        launched = await begun(world, worker)
        await world.system.terminate()
        await world.until(lambda: process.poll() is not None, "the worker ends")
        assert process.returncode == 4
        assert not psutil.pid_exists(launched.pid)
        assert "no leading master" in (tmp_path / "worker.log").read_text()

    run(tmp_path, scenario)


@pytest.mark.nightly("simulated by test_worker_registration")
def test_a_refused_worker_says_why_and_tries_again(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.leader.refusal = WorkerRefused("name-taken", "there is a worker named box", "name it otherwise")
        world.start_worker(world.program("sleeps", SLEEPS))
        await world.told(RegisterWorker)
        await world.until(
            lambda: "there is a worker named box" in (tmp_path / "worker.log").read_text(),
            "the reason is logged",
        )
        world.leader.refusal = None
        await world.registered()

    run(tmp_path, scenario)


@pytest.mark.nightly("test_worker_registration; other tests of this module launch and end processes")
def test_a_worker_that_is_asked_to_end_waits_for_its_processes_and_takes_no_launches(tmp_path: Path) -> None:
    gate = tmp_path / "finish"

    async def scenario(world: World) -> None:
        program = world.program("finishes", f"GATE = {str(gate)!r}\n{FINISHES}")
        process = world.start_worker(program, worker__drain_timeout="60 s")
        worker = await world.registered()
        worker.tell(world.launch(), world.me)
        await begun(world, worker)
        process.send_signal(signal.SIGTERM)
        await world.until(lambda: any(each.leaves for each in world.of(WorkerReport)), "it leaves")
        worker.tell(world.launch(), world.me)
        assert (await world.told(LaunchFailed)).code == "worker-leaves"
        assert not world.of(ProcessExited)
        gate.touch()
        assert (await world.told(ProcessExited)).status == 0
        await world.until(lambda: process.poll() is not None, "the worker ends")
        assert process.returncode == 0

    run(tmp_path, scenario)


@pytest.mark.nightly("test_worker_registration; other tests of this module launch and end processes")
def test_a_process_that_does_not_hand_over_in_time_is_killed_with_its_worker(
    tmp_path: Path,
) -> None:
    async def scenario(world: World) -> None:
        program = world.program("finishes", f"GATE = {str(tmp_path / 'never')!r}\n{FINISHES}")
        process = world.start_worker(program, worker__drain_timeout="500 ms")
        worker = await world.registered()
        worker.tell(world.launch(), world.me)
        launched = await begun(world, worker)
        process.send_signal(signal.SIGTERM)
        await world.until(lambda: process.poll() is not None, "the worker ends")
        assert process.returncode == 0
        assert not psutil.pid_exists(launched.pid)

    run(tmp_path, scenario)
